package submission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/internal/store"
)

// ContextEdit is an operator's change of the context of an existing task. Exactly one of
// Context and Patch is set.
type ContextEdit struct {
	Context json.RawMessage // the complete new context
	Patch   json.RawMessage // a JSON merge patch (RFC 7396)
	Bounds  Bounds          // of the new context
}

// Check validates everything that needs no task. The error is an *InvalidError.
func (e *ContextEdit) Check() error {
	var c Checker
	switch {
	case (e.Context == nil) == (e.Patch == nil):
		c.Add("give either a context or a context_patch")
	case e.Context != nil:
		if err := e.Bounds.CheckContext(e.Context); err != nil {
			c.Add("%s", err)
		}
	default: // the patch has the bounds of its result
		if err := e.Bounds.CheckContext(e.Patch); err != nil {
			c.Add("context_patch: %s", err)
		}
	}
	return c.Err()
}

// Apply returns the edited context. It must be valid for a new task of the plan; the error
// is an *InvalidError where it is not.
func (e *ContextEdit) Apply(ctx context.Context, old json.RawMessage, plan *store.Plan, policy *SchemaPolicy, by Checks) (json.RawMessage, error) {
	edited, err := e.Merge(old)
	if err != nil {
		return nil, err
	}
	return edited, policy.check(ctx, by, edited, plan)
}

// Merge is Apply without a plan.
func (e *ContextEdit) Merge(old json.RawMessage) (json.RawMessage, error) {
	if err := e.Check(); err != nil || e.Context != nil {
		return e.Context, err
	}
	edited, err := mergePatch(old, e.Patch)
	if err != nil {
		return nil, err
	}
	if err := e.Bounds.CheckContext(edited); err != nil {
		return nil, &InvalidError{Problems: []string{err.Error()}}
	}
	return edited, nil
}

// mergePatch applies a JSON merge patch. Numbers keep their digits.
func mergePatch(old, patch json.RawMessage) (json.RawMessage, error) {
	target, err := decodeNumbers(old)
	if err != nil {
		return nil, fmt.Errorf("read the context: %w", err)
	}
	change, err := decodeNumbers(patch)
	if err != nil {
		return nil, &InvalidError{Problems: []string{"context_patch must be a JSON object"}}
	}
	return encodePlain(merged(target, change))
}

// merged is the algorithm of RFC 7396: null removes a key, objects are merged recursively,
// and other values replace the old ones.
func merged(target, patch any) any {
	change, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for key, value := range change {
		if value == nil {
			delete(object, key)
			continue
		}
		object[key] = merged(object[key], value)
	}
	return object
}

// ContextChange is a place in which two contexts differ.
type ContextChange struct {
	Path   string          // JSON pointer (RFC 6901)
	Before json.RawMessage // nil: absent
	After  json.RawMessage // nil: absent
}

// ContextChanges compares two contexts key by key, in the order of the paths, and lists up
// to limit places; more says that there are others. An array is one place: a moved element
// would look like a change of all that follow.
func ContextChanges(before, after json.RawMessage, limit int) (changes []ContextChange, more bool, err error) {
	b, err := decodeNumbers(before)
	if err != nil {
		return nil, false, fmt.Errorf("compare contexts: %w", err)
	}
	a, err := decodeNumbers(after)
	if err != nil {
		return nil, false, fmt.Errorf("compare contexts: %w", err)
	}
	d := differing{limit: limit}
	if err := d.compare("", b, a); err != nil && !errors.Is(err, errEnough) {
		return nil, false, err
	}
	return d.changes, d.more, nil
}

var errEnough = errors.New("there are more changes")

type differing struct {
	limit   int
	changes []ContextChange
	more    bool
}

func (d *differing) compare(path string, before, after any) error {
	b, isObject := before.(map[string]any)
	a, stays := after.(map[string]any)
	if !isObject || !stays {
		return d.leaf(path, before, after, true, true)
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(b)), maps.Keys(a))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		was, before := b[key]
		is, after := a[key]
		at := path + "/" + pointerEscapes.Replace(key)
		var err error
		if before && after {
			err = d.compare(at, was, is)
		} else {
			err = d.leaf(at, was, is, before, after)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differing) leaf(path string, before, after any, was, is bool) (err error) {
	c := ContextChange{Path: path}
	if was {
		if c.Before, err = encodePlain(before); err != nil {
			return err
		}
	}
	if is {
		if c.After, err = encodePlain(after); err != nil {
			return err
		}
	}
	switch {
	case was && is && bytes.Equal(c.Before, c.After):
		return nil
	case len(d.changes) >= d.limit:
		d.more = true
		return errEnough
	}
	d.changes = append(d.changes, c)
	return nil
}

func decodeNumbers(doc json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// encodePlain does not escape HTML characters.
func encodePlain(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("write the context: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
