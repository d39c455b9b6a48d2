package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/wording"
)

// maxViolations bounds what Validate reports, and the faults of one schema.
const maxViolations = 20

// Schema is a compiled JSON Schema. It is safe for concurrent use; the nil *Schema accepts every
// value.
type Schema struct {
	compiled *jsonschema.Schema // to be read, not to check with
	document any                // what it was compiled of, for more instances
	draft    *jsonschema.Draft
	idle     sync.Pool // of *instance
}

// Violation is one way in which a value breaks the schema. It contains what is expected, never
// what was sent.
type Violation struct {
	Path    string `json:"path"` // JSON pointer into the value; "" is the value itself
	Message string `json:"message"`
}

// Fault is a fault of a schema and its place.
type Fault struct {
	Pointer []string // the parts of the JSON pointer to it
	Message string
	// Fatal says that the schema can be used, but at a cost that no template may have.
	Fatal bool
}

// Read compiles a schema from its JSON text; without a text, or for null, it is nil. The
// schema is read as draft 2020-12 unless it says otherwise; "format" is not enforced and
// nothing outside the schema is ever loaded. The error names the first fault.
func Read(doc json.RawMessage) (*Schema, error) {
	if len(doc) == 0 {
		return nil, nil
	}
	value, err := jsonscan.Decode(doc)
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	if value == nil {
		return nil, nil
	}
	new(relaxing).relax(value, nil)
	s, faults := compileAny(value)
	if len(faults) > 0 {
		return nil, fmt.Errorf("invalid schema at %q: %s", Pointer(faults[0].Pointer), faults[0].Message)
	}
	return s, nil
}

// Compile compiles a decoded schema, which it changes, or returns its faults. Two habits of
// hand-written schemas that the standard rejects are repaired because their meaning is clear:
// a keyword without a value (an empty description:) is dropped, and required: true at a
// property becomes an entry in the required list of the enclosing object; hoisted are the
// places of the latter.
//
// The alternatives of a new schema may not refer back to it for the same part of a value. Read
// accepts those of templates that were registered before: budgets bound them.
func Compile(value any) (s *Schema, hoisted [][]string, faults []Fault) {
	var r relaxing
	r.relax(value, nil)
	s, faults = compileAny(value)
	if faults == nil {
		faults = doublingFault(reachableFrom([]*jsonschema.Schema{s.compiled}))
	}
	if faults != nil {
		return nil, r.hoisted, faults
	}
	return s, r.hoisted, nil
}

// Budget bounds one check. A step is the work for one value and one subschema that applies to it,
// or as much work of another kind.
type Budget struct {
	Steps int
	Time  time.Duration
}

// BudgetError says that a check was given up. Either field is set.
type BudgetError struct {
	Steps int
	Time  time.Duration
}

// Error implements error.
func (e *BudgetError) Error() string {
	if e.Steps > 0 {
		return fmt.Sprintf("its check takes more than %d steps: the schema or the value is too complex", e.Steps)
	}
	return fmt.Sprintf("its check takes longer than %s: the schema or the value is too complex", e.Time)
}

// TooManySteps returns the *BudgetError of a check that took too many steps, whatever its time: then the
// value or its schema is too complex. nil: err is another one, or nil.
func TooManySteps(err error) *BudgetError {
	if err == nil {
		return nil // before anything goes to the heap
	}
	var over *BudgetError
	if errors.As(err, &over) && over.Steps > 0 {
		return over
	}
	return nil
}

// explainSteps bounds the search for the violations of a value that is known not to fit: the
// failures that the library keeps in memory.
const explainSteps = 100_000

// unexplained is the violation of a value whose violations were not found within explainSteps.
const unexplained = "does not fit; it is too large or nested too deeply to say where"

// Validate checks a value as encoding/json decodes it, or anything that encoding/json can
// encode. It returns nil when the value fits and otherwise up to 20 violations, ordered by
// path. The error is a *BudgetError, or that of the context.
func (s *Schema) Validate(ctx context.Context, limit Budget, value any) ([]Violation, error) {
	if s == nil {
		return nil, nil
	}
	value, depth, err := jsonValue(value)
	if err != nil {
		return []Violation{{Message: "is not a JSON value: " + wording.Line(err.Error())}}, nil
	}
	of, err := s.instance()
	if err != nil {
		return nil, err
	}
	defer s.idle.Put(of)
	failure, err := of.check(ctx, limit, depth, of.negation, value)
	if err != nil || failure != nil {
		return nil, err // the negation fails: the value fits
	}
	limit.Steps = min(limit.Steps, explainSteps)
	failure, err = of.check(ctx, limit, depth, of.whole, value)
	if over := (*BudgetError)(nil); errors.As(err, &over) {
		return []Violation{{Message: unexplained}}, nil
	}
	if err != nil {
		return nil, err
	}
	return violationsOf(failure), nil
}

// instance returns one that is idle, or else another.
func (s *Schema) instance() (*instance, error) {
	if of, ok := s.idle.Get().(*instance); ok {
		return of, nil
	}
	of, faults := compileDraft(s.document, s.draft)
	if faults != nil { // it could be compiled before
		return nil, fmt.Errorf("compile a schema again: %s", faults[0].Message)
	}
	return of, nil
}

// check runs the library within a budget; failure is nil where the value fits.
func (of *instance) check(ctx context.Context, limit Budget, depth int, schema *jsonschema.Schema, value any) (failure, err error) {
	of.meter.begin(ctx, limit, depthFactor(depth))
	defer func() {
		if p := recover(); p != nil {
			end, ours := p.(stopped)
			if !ours {
				panic(p) //nolint:forbidigo // it is not the meter's
			}
			failure, err = nil, end.err
		}
		of.meter.ctx = nil
	}()
	return schema.Validate(value), nil
}

// violationsOf describes a failure.
func violationsOf(failure error) []Violation {
	var failed *jsonschema.ValidationError
	if !errors.As(failure, &failed) {
		return []Violation{{Message: unexplained}}
	}
	found := collectViolations(failed)
	slices.SortFunc(found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	found = slices.Compact(found)
	return found[:min(len(found), maxViolations)]
}

// jsonValue makes sure that the value consists only of types that the validator knows; other
// Go values are converted through their JSON text. depth is that of its nesting.
func jsonValue(v any) (value any, depth int, err error) {
	if data, ok := v.(json.RawMessage); ok {
		return decodeBounded(data)
	}
	if depth, ok := nesting(v, 0); ok {
		return v, depth, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, 0, err
	}
	return decodeBounded(data)
}

func decodeBounded(data []byte) (v any, depth int, err error) {
	if v, err = jsonscan.Decode(data); err != nil {
		return nil, 0, err
	}
	depth, ok := nesting(v, 0)
	if !ok {
		err = errors.New("it is nested too deeply or has a number beyond all bounds")
	}
	return v, depth, err
}

// maxDepth is far above what the API accepts.
const maxDepth = 1_000

// nesting returns how deeply a value at a depth is nested, and whether the validator can use it
// unchanged. A number such as 1e999999 would make it build a number of a million digits.
func nesting(v any, depth int) (deepest int, ok bool) {
	if depth > maxDepth {
		return depth, false
	}
	deepest = depth
	within := func(e any) bool {
		below, ok := nesting(e, depth+1)
		deepest = max(deepest, below)
		return ok
	}
	switch v := v.(type) {
	case nil, bool, string, int, int32, int64, uint64:
		return depth, true
	case float64:
		return depth, !math.IsInf(v, 0) && !math.IsNaN(v)
	case json.Number:
		f, err := v.Float64()
		return depth, err == nil && jsonscan.CheckNumber(v.String()) == nil && (f != 0 || !strings.ContainsAny(v.String(), "eE"))
	case []any:
		for _, e := range v {
			if !within(e) {
				return deepest, false
			}
		}
		return deepest, true
	case map[string]any:
		for _, e := range v {
			if !within(e) {
				return deepest, false
			}
		}
		return deepest, true
	}
	return depth, false
}

// Pointer joins the parts of a pointer as RFC 6901 does.
func Pointer(parts []string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, part := range parts {
		b.WriteByte('/')
		b.WriteString(escape.Replace(part))
	}
	return b.String()
}
