package worker

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/workflow"
)

// DependencyResult returns the result of a step this one depends on, directly or not, as
// its handler returned it. Results of direct parents came with the claim; others are read
// from the database on first use.
//
// The error wraps ErrUnknownStep if there is no such ancestor, and ErrAbsent if the
// ancestor has no result (it was resolved by hand, or never created).
func (c *StepContext) DependencyResult(name string) (json.RawMessage, error) {
	no, ok := c.plan.StepNumber(name)
	if !ok {
		raw, ok, err := c.batchNamed(name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read the result of step %q: %w", name, err)
		case !ok:
			return nil, fmt.Errorf("step %q of %s: %w", name, c.plan.Template.Name, ErrUnknownStep)
		}
		return present(name, raw)
	}
	if work := c.x.Claim.Batch; work != nil && c.plan.Steps[no].Kind == workflow.KindBatchable && slices.Contains(c.step.Parents, no) {
		raw, err := c.run.shared.get(c, sharedKey{c.x.Claim.TaskUUID, no, work.First, work.Since}, c.run.board.BatchableResult)
		if err != nil {
			return nil, fmt.Errorf("read the result of step %q: %w", name, err)
		}
		return present(name, raw)
	}
	if slices.Contains(c.step.Parents, no) {
		return present(name, c.x.Claim.ParentResults[no])
	}
	if !slices.Contains(c.plan.Ancestors(c.step.No), no) {
		return nil, fmt.Errorf("step %q of %s: %w", name, c.plan.Template.Name, ErrUnknownStep)
	}
	raw, err := c.ancestor(no)
	if err != nil {
		return nil, fmt.Errorf("read the result of step %q: %w", name, err)
	}
	return present(name, raw)
}

// DependencyResults returns the results of the direct parents that have one, by name.
// Those of batches, which may be many, are in BatchResults; a batch gets the result of
// the step that created it from DependencyResult, without the list of all batches.
func (c *StepContext) DependencyResults() map[string]json.RawMessage {
	results := make(map[string]json.RawMessage, len(c.step.Parents))
	for _, no := range c.step.Parents {
		if raw := c.x.Claim.ParentResults[no]; raw != nil {
			results[c.plan.Steps[no].Name] = raw
		}
	}
	return results
}

// ResultOf decodes the result of a step this one depends on. An object with the single
// key "result" is an envelope and unwrapped, unless T has such a field itself. The errors
// are those of DependencyResult.
func ResultOf[T any](c *StepContext, name string) (T, error) {
	var v T
	raw, err := c.DependencyResult(name)
	if err != nil {
		return v, err
	}
	if !hasResultField(reflect.TypeFor[T]()) {
		raw = unwrapped(raw)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("decode the result of step %q: %w", name, err)
	}
	return v, nil
}

func present(name string, raw json.RawMessage) (json.RawMessage, error) {
	if raw == nil {
		return nil, fmt.Errorf("the result of step %q is %w", name, ErrAbsent)
	}
	return raw, nil
}

// ancestor reads a result once.
func (c *StepContext) ancestor(no int) (json.RawMessage, error) {
	c.mu.Lock()
	raw, known := c.fetched[no]
	c.mu.Unlock()
	if known {
		return raw, nil
	}
	results, err := c.run.board.StepResults(c, c.x.Claim.TaskUUID, []int{no})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fetched == nil {
		c.fetched = map[int]json.RawMessage{}
	}
	c.fetched[no] = results[no]
	return results[no], nil
}

const envelopeKey = "result"

// unwrapped returns the value in an envelope; other values unchanged.
func unwrapped(raw json.RawMessage) json.RawMessage {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || len(object) != 1 {
		return raw
	}
	if inner, ok := object[envelopeKey]; ok {
		return inner
	}
	return raw
}

// hasResultField reports whether a type is itself the envelope.
func hasResultField(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" && f.IsExported() && !f.Anonymous {
			name = f.Name
		}
		if strings.EqualFold(name, envelopeKey) {
			return true
		}
	}
	return false
}
