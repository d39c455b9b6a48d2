package workflow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// The keys of a result that say what to create.
const (
	DecisionOutcomeKey = "decision_point_outcome"
	BatchOutcomeKey    = "batch_processing_outcome"
)

// decisionOutcome is the outcome of a decision: the names of the steps to create; none: no
// branches.
type decisionOutcome struct {
	Steps []string
	Odd   string // how the outcome should have been written; "" where it was
}

// batchOutcome is the outcome of a batchable step: one batch per cursor; none: there is
// nothing to do, though the batch worker may still be named.
type batchOutcome struct {
	WorkerTemplate string
	Odd            string // how the outcome should have been written; "" where it was
	Bare           bool   // it is a text alone, for which not even a placeholder is created
	Cursors        []CursorConfig
	TotalItems     int64
}

// CursorConfig is the part of the work of one batch. Cursors may be any JSON; End is
// exclusive.
type CursorConfig struct {
	BatchID   string          `json:"batch_id"`
	Start     json.RawMessage `json:"start_cursor"`
	End       json.RawMessage `json:"end_cursor"`
	BatchSize int64           `json:"batch_size"`
	// Items are the items of the batch, instead of those between the cursors; nil: those.
	Items []json.RawMessage `json:"items,omitempty"`
}

const maxBatchID = 64 // characters

// parseDecisionOutcome reads the outcome from the result of a decision. The text of its
// error is for operators.
func parseDecisionOutcome(result json.RawMessage) (decisionOutcome, error) {
	var o decisionOutcome
	var wire struct {
		Type  string   `json:"type"`
		Names []string `json:"step_names"`
	}
	var err error
	if o.Odd, err = readOutcome(result, DecisionOutcomeKey, "no_branches", &wire); o.Odd != "" || err != nil {
		return o, err
	}
	switch wire.Type {
	case "no_branches":
		return o, nil
	case "create_steps":
		if len(wire.Names) == 0 {
			return o, fmt.Errorf("%s: create_steps names no step; no_branches says that there is nothing to create", DecisionOutcomeKey)
		}
		o.Steps = wire.Names
		return o, nil
	}
	return o, fmt.Errorf("%s: the type is %.64q; it can be create_steps or no_branches", DecisionOutcomeKey, wire.Type)
}

// parseBatchOutcome reads the outcome from the result of a batchable step; see
// parseDecisionOutcome.
func parseBatchOutcome(result json.RawMessage) (batchOutcome, error) {
	var o batchOutcome
	var wire struct {
		Type     string         `json:"type"`
		Template string         `json:"worker_template_name"`
		Count    *int           `json:"worker_count"`
		Cursors  []CursorConfig `json:"cursor_configs"`
		Total    int64          `json:"total_items"`
	}
	var err error
	if o.Odd, err = readOutcome(result, BatchOutcomeKey, "no_batches", &wire); o.Odd != "" || err != nil {
		o.Bare = o.Odd != ""
		return o, err
	}
	switch wire.Type {
	case "no_batches":
		return o, nil
	case "create_batches":
	default:
		return o, fmt.Errorf("%s: the type is %.64q; it can be create_batches or no_batches", BatchOutcomeKey, wire.Type)
	}
	count := 0
	if wire.Count != nil {
		count = *wire.Count
	}
	switch {
	case wire.Count != nil && count == 0 && len(wire.Cursors) == 0 && wire.Total == 0:
		o.WorkerTemplate, o.Odd = wire.Template, "the outcome is create_batches without batches; it should be no_batches"
		return o, nil
	case wire.Template == "":
		return o, fmt.Errorf("%s: worker_template_name is missing", BatchOutcomeKey)
	case len(wire.Cursors) == 0:
		return o, fmt.Errorf("%s: create_batches has no cursor_configs; no_batches says that there is nothing to do", BatchOutcomeKey)
	case count != len(wire.Cursors):
		return o, fmt.Errorf("%s: worker_count is %d, but there are %d cursor_configs", BatchOutcomeKey, count, len(wire.Cursors))
	case wire.Total < 0:
		return o, fmt.Errorf("%s: total_items is %d", BatchOutcomeKey, wire.Total)
	}
	o = batchOutcome{WorkerTemplate: wire.Template, Cursors: wire.Cursors, TotalItems: wire.Total}
	return o, checkCursors(wire.Cursors)
}

func checkCursors(cursors []CursorConfig) error {
	seen := make(map[string]bool, len(cursors))
	for i := range cursors {
		c := &cursors[i]
		switch {
		case c.BatchID == "" || utf8.RuneCountInString(c.BatchID) > maxBatchID:
			return fmt.Errorf("%s: the batch_id of cursor_configs[%d] must have 1 to %d characters", BatchOutcomeKey, i, maxBatchID)
		case seen[c.BatchID]:
			return fmt.Errorf("%s: two batches have the batch_id %q", BatchOutcomeKey, c.BatchID)
		case c.Start == nil || c.End == nil:
			return fmt.Errorf("%s: batch %q needs start_cursor and end_cursor", BatchOutcomeKey, c.BatchID)
		case c.BatchSize < 0:
			return fmt.Errorf("%s: batch %q has a batch_size of %d", BatchOutcomeKey, c.BatchID, c.BatchSize)
		}
		seen[c.BatchID] = true
		var start, end int64
		if json.Unmarshal(c.Start, &start) == nil && json.Unmarshal(c.End, &end) == nil && start > end {
			return fmt.Errorf("%s: batch %q begins at %d, behind its end at %d", BatchOutcomeKey, c.BatchID, start, end)
		}
	}
	return nil
}

// readOutcome decodes one key of a result. Some SDKs write an outcome that has only a type as
// a text, alone or under the key: odd then says how it should be written.
func readOutcome(result json.RawMessage, key, none string, into any) (odd string, err error) {
	var text string
	var fields map[string]json.RawMessage
	if json.Unmarshal(result, &text) != nil {
		if err := json.Unmarshal(result, &fields); err != nil {
			return "", fmt.Errorf("the result is no object with a %s", key)
		}
		_ = json.Unmarshal(fields[key], &text) // else it is an object, see below
	}
	if text == none {
		return fmt.Sprintf(`the outcome is the bare text %q; it should be {"type": %[1]q}`, none), nil
	}
	outcome, ok := fields[key]
	switch {
	case fields == nil:
		return "", fmt.Errorf("the result is no object with a %s", key)
	case !ok:
		return "", fmt.Errorf("the result has no %s", key)
	}
	var wrong *json.UnmarshalTypeError
	switch err := json.Unmarshal(outcome, into); {
	case errors.As(err, &wrong):
		return "", fmt.Errorf("%s: %s cannot be a %s", key, wrong.Field, wrong.Value)
	case err != nil:
		return "", fmt.Errorf("%s cannot be read", key)
	}
	return "", nil
}

// CheckResult reports a result that asks for steps which its step may not create: it would
// silently have no effect. It is for the worker, which has the result in hand; the text of
// the error is for operators.
func CheckResult(kind StepKind, result json.RawMessage) error {
	for _, o := range [...]struct {
		key  string
		kind StepKind
	}{{DecisionOutcomeKey, KindDecision}, {BatchOutcomeKey, KindBatchable}} {
		if kind == o.kind || !bytes.Contains(result, []byte(o.key)) {
			continue
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(result, &fields) != nil {
			continue
		}
		if _, has := fields[o.key]; has {
			return fmt.Errorf("the result has a %s, but the step is of type %s, not %s", o.key, kind, o.kind)
		}
	}
	return nil
}
