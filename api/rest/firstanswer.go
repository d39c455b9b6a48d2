package rest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/orchestration"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// firstAnswer answers the creation of tasks of one plan. The common part is encoded once;
// the rest is inserted. The result equals encoding/json's of the client.Task.
type firstAnswer struct {
	head  []byte // from "name" to "status"
	tail  []byte // from "total_steps" to the beginning of "steps"
	steps []firstStep
}

// firstStep is a step of a new task: from "named_step_uuid" to its end.
type firstStep struct {
	no   int
	rest []byte
}

// newFirstAnswer encodes a task of the plan and splits it. Quotes inside of texts are
// escaped, so it splits at keys.
func newFirstAnswer(plan *store.Plan) (*firstAnswer, error) {
	sample := store.NewTask{Plan: plan, Context: json.RawMessage(`{}`)}
	task, err := sample.AsCreated(time.Time{})
	if err != nil {
		return nil, err
	}
	shown := taskOf(task, true)
	text, err := encode(shown)
	if err != nil {
		return nil, err
	}
	a := &firstAnswer{}
	var inside bool
	if _, text, inside = bytes.Cut(text, []byte(`,"name":`)); inside {
		a.head, text, inside = bytes.Cut(text, []byte(`,"created_at":`))
	}
	if inside {
		_, text, inside = bytes.Cut(text, []byte(`,"total_steps":`))
	}
	if inside {
		a.tail, _, inside = bytes.Cut(text, []byte(`,"steps":[`))
	}
	for i := range task.Steps {
		var step, rest []byte
		if step, err = encode(&shown.Steps[i]); err != nil {
			return nil, err
		}
		if _, rest, inside = bytes.Cut(step, []byte(`,"named_step_uuid":`)); !inside {
			break
		}
		a.steps = append(a.steps, firstStep{no: task.Steps[i].No, rest: bytes.TrimSuffix(rest, []byte("\n"))})
	}
	if !inside {
		return nil, fmt.Errorf("the encoding of a task differs: %s", text)
	}
	return a, nil
}

// append appends the answer to one creation.
func (a *firstAnswer) append(b []byte, r *orchestration.Request, c *orchestration.Created) []byte {
	b = appendUUID(append(b, `{"task_uuid":`...), c.UUID)
	b = append(append(b, `,"name":`...), a.head...)
	b = appendTime(append(b, `,"created_at":`...), c.RequestedAt)
	b = appendTime(append(b, `,"updated_at":`...), c.RequestedAt)
	b = appendCompact(append(b, `,"completed_at":null,"context":`...), r.Context)
	b = appendText(append(b, `,"initiator":`...), orUnknown(r.Initiator))
	b = appendText(append(b, `,"source_system":`...), orUnknown(r.SourceSystem))
	b = appendText(append(b, `,"reason":`...), orUnknown(r.Reason))
	b = strconv.AppendInt(append(b, `,"priority":`...), int64(c.Priority), 10)
	b = strconv.AppendInt(append(b, `,"priority_level":`...), int64(workflow.LevelOfPriority(c.Priority)), 10)
	b = append(b, `,"tags":[`...)
	for i, tag := range r.Tags {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, tag)
	}
	b = appendUUID(append(b, `],"correlation_id":`...), c.CorrelationID)
	b = append(b, `,"parent_correlation_id":`...)
	if r.ParentCorrelationID != nil {
		b = appendUUID(b, *r.ParentCorrelationID)
	} else {
		b = append(b, "null"...)
	}
	b = append(append(b, `,"total_steps":`...), a.tail...)
	b = append(b, `,"steps":[`...)
	for i, step := range a.steps {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUUID(append(b, `{"workflow_step_uuid":`...), store.StepUUID(c.UUID, step.no))
		b = appendUUID(append(b, `,"task_uuid":`...), c.UUID)
		b = append(append(b, `,"named_step_uuid":`...), step.rest...)
	}
	return append(b, "]}\n"...)
}

func orUnknown(text string) string {
	if text == "" {
		return known(nil)
	}
	return text
}

func appendUUID(b []byte, id uuid.UUID) []byte {
	b = hex.AppendEncode(append(b, '"'), id[:4])
	b = hex.AppendEncode(append(b, '-'), id[4:6])
	b = hex.AppendEncode(append(b, '-'), id[6:8])
	b = hex.AppendEncode(append(b, '-'), id[8:10])
	b = hex.AppendEncode(append(b, '-'), id[10:])
	return append(b, '"')
}

func appendTime(b []byte, t time.Time) []byte {
	b, _ = client.Time{Time: t}.AppendText(append(b, '"')) // it cannot fail
	return append(b, '"')
}

// appendText appends a JSON string.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x80 || c == '"' || c == '\\' {
			quoted, err := encode(text)
			if err != nil { // never
				quoted = []byte(`""`)
			}
			return append(b, bytes.TrimSuffix(quoted, []byte("\n"))...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// appendCompact appends valid JSON without the white space between its parts.
func appendCompact(b []byte, value []byte) []byte {
	inside := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			inside = !inside
			b = append(b, c)
		case c == '\\':
			b = append(b, c, value[i+1]) // only inside, never the last
			i++
		case !inside && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
		default:
			b = append(b, c)
		}
	}
	return b
}

// encode encodes an answer as JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return b.Bytes(), nil
}

// maxFirstAnswers bounds the memory of firstAnswers; evicted ones are made again.
const maxFirstAnswers = 1024

// firstAnswers caches the answers of the plans in use. It is safe for concurrent use.
type firstAnswers struct {
	mu   sync.RWMutex
	kept map[int32]*firstAnswer
}

func (f *firstAnswers) of(plan *store.Plan) (*firstAnswer, error) {
	f.mu.RLock()
	a := f.kept[plan.ID]
	f.mu.RUnlock()
	if a != nil {
		return a, nil
	}
	a, err := newFirstAnswer(plan)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept == nil || len(f.kept) >= maxFirstAnswers {
		f.kept = map[int32]*firstAnswer{}
	}
	f.kept[plan.ID] = a
	return a, nil
}
