package schema

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The library has no budget and no context. What it does have is the validator of a format, which
// it calls for each subschema that it applies to a value, before it looks at the parts of the value.
// So each subschema gets a format, which counts what applying it will cost and stops the check with
// a panic. A format knows nothing of the check it is called by: each check under way has a compiled
// schema of its own (an instance), with its own meter.

// meter counts the work of the check that uses its instance.
type meter struct {
	ctx      context.Context
	left     int // of the budget, in steps
	factor   int // what a step of this check counts, see depthFactor
	looked   int // left when the clock and the context were looked at
	deadline time.Time
	limit    Budget
}

// stopped is the panic that ends a check.
type stopped struct{ err error }

// lookEvery is how many steps are made between two looks at the clock and the context, after which
// other work of the daemon has its turn: a tenth of a millisecond.
const lookEvery = 1024

// begin prepares the meter for a check.
func (m *meter) begin(ctx context.Context, limit Budget, factor int) {
	*m = meter{ctx: ctx, left: limit.Steps, looked: limit.Steps, factor: factor, limit: limit, deadline: time.Now().Add(limit.Time)}
}

// spend counts steps, and stops the check beyond its budget or once its caller has left.
func (m *meter) spend(steps int) {
	m.left -= steps * m.factor
	if m.left < 0 {
		panic(stopped{&BudgetError{Steps: m.limit.Steps}}) //nolint:forbidigo // the only way out of the library, recovered by instance.check
	}
	if m.looked-m.left < lookEvery {
		return
	}
	m.looked = m.left
	runtime.Gosched()
	if err := m.ctx.Err(); err != nil {
		panic(stopped{fmt.Errorf("check a value against a schema: %w", context.Cause(m.ctx))}) //nolint:forbidigo // as above
	}
	if time.Now().After(m.deadline) {
		panic(stopped{&BudgetError{Time: m.limit.Time}}) //nolint:forbidigo // as above
	}
}

// depthFactor makes steps in a deeply nested value count more: each failure repeats the path to
// its value.
func depthFactor(depth int) int { return 1 + depth/16 }

// price is what applying a subschema costs, apart from the subschemas that it applies in turn.
type price struct {
	once     int  // for any value
	each     int  // for each property of an object
	items    int  // for each item of a list; 0: the list is not walked
	text     bool // the length of a text counts
	compared bool // items are compared with each other
}

// of returns the steps for a value.
func (p *price) of(v any) int {
	steps := p.once
	switch v := v.(type) {
	case map[string]any:
		steps += len(v) * p.each
	case []any:
		steps += len(v) * p.items
		if p.compared {
			steps += size(v) / 4
		}
	case string:
		if p.text {
			steps += len(v) / 64
		}
	}
	return steps
}

// size counts the values within a value.
func size(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			n += size(e)
		}
	case []any:
		for _, e := range v {
			n += size(e)
		}
	}
	return n
}

// entry is what it costs to find out that a subschema does not apply: type, const and enum are
// compared before the meter is asked.
func entry(s *jsonschema.Schema) int {
	n := 1
	if s.Const != nil {
		n += size(*s.Const)
	}
	if s.Enum != nil {
		for _, v := range s.Enum.Values {
			n += size(v)
		}
	}
	return n
}

// priceOf computes the price of a subschema.
func priceOf(s *jsonschema.Schema, everything bool) price {
	p := price{once: entry(s) + len(s.Required), each: 1 + len(s.PatternProperties), text: s.Pattern != nil || s.MinLength != nil || s.MaxLength != nil,
		compared: s.UniqueItems}
	for _, next := range sameValue(s) {
		if next != nil {
			p.once += entry(next)
		}
	}
	most := 0
	for _, part := range partsOfValue(s) {
		if part != nil {
			most = max(most, entry(part))
		}
	}
	p.each *= 1 + most
	if most > 0 || everything {
		p.items = 1 + most
	}
	return p
}

// metered makes all subschemas of an instance count their work.
func metered(m *meter, reachable []*jsonschema.Schema) {
	everything := false // what is not evaluated is remembered for each subschema
	for _, s := range reachable {
		everything = everything || s.UnevaluatedItems != nil || s.UnevaluatedProperties != nil
	}
	for _, s := range reachable {
		if s.Bool != nil {
			continue
		}
		p, own := priceOf(s, everything), s.Format
		format := &jsonschema.Format{Validate: func(v any) error {
			m.spend(p.of(v))
			if own != nil {
				return own.Validate(v)
			}
			return nil
		}}
		if own != nil {
			format.Name = own.Name
		}
		s.Format = format
	}
}
