package workertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

// board answers what executions read and keeps the checkpoints that they save. It has the
// methods that a rehearsal calls; the others are of the embedded nil interface.
type board struct {
	engine.Board
	now     func() time.Time
	results map[int]json.RawMessage // by step
	batches map[int][]store.BatchResult

	mu     sync.Mutex
	points []store.Checkpoint
	back   bool // the handler has handed the step back
}

func newBoard() *board {
	return &board{now: time.Now, results: map[int]json.RawMessage{}, batches: map[int][]store.BatchResult{}}
}

// PlanByID is called for handlers that are not found, which no other worker has.
func (b *board) PlanByID(context.Context, int32) (*store.Plan, error) {
	return nil, errors.New("no other workers")
}

// SampleOf is called for handlers that succeed: no times are learned here.
func (b *board) SampleOf(int32, *workflow.Plan, *workflow.PlanStep, []byte, time.Duration) (x store.Sample, ok bool) {
	return x, false
}

// Inputs is for large claims, of which there are none here.
func (*board) Inputs(context.Context, *store.Claimed, int64) (int64, error) {
	return 0, errors.New("not of this board")
}

// LoseClaim records nothing, so that the step fails as where the loss of its process cannot be recorded.
func (*board) LoseClaim(context.Context, store.ClaimKey, bool, int) ([]signal.Signal, error) {
	return nil, errors.New("a rehearsal records no losses")
}

// HandBack is called for handlers that return worker.HandBack.
func (b *board) HandBack(context.Context, []store.ClaimKey) ([]signal.Signal, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = true
	return nil, nil
}

func (b *board) handedBack() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.back
}

// KeepLogs is for workers whose logs are kept.
func (*board) KeepLogs(context.Context, []store.LogChunk, []store.DroppedLog, []store.StepProgress) error {
	return errors.New("not of this board")
}

func (b *board) SaveCheckpoints(_ context.Context, list []store.Checkpoint, _ int, _ time.Duration) ([]store.SavedCheckpoint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.points = append(b.points, list...)
	saved := make([]store.SavedCheckpoint, len(list))
	for i := range saved {
		saved[i] = store.SavedCheckpoint{Saved: true, At: b.now()}
	}
	return saved, nil
}

// taken returns the checkpoints saved since the last call.
func (b *board) taken() []store.Checkpoint {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.points
	b.points = nil
	return list
}

func (b *board) StepResults(_ context.Context, _ uuid.UUID, steps []int) (map[int]json.RawMessage, error) {
	found := map[int]json.RawMessage{}
	for _, no := range steps {
		if doc, ok := b.results[no]; ok {
			found[no] = doc
		}
	}
	return found, nil
}

func (b *board) BatchResults(_ context.Context, _ uuid.UUID, template, after, limit int) (page []store.BatchResult, _ error) {
	for _, r := range b.batches[template] {
		if r.Step > after && len(page) < limit {
			page = append(page, r)
		}
	}
	return page, nil
}

// BatchableResult returns the result without the list of batches, as the database does.
func (b *board) BatchableResult(_ context.Context, _ uuid.UUID, step int) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b.results[step], &fields); err != nil {
		return nil, fmt.Errorf("read the result of a batchable step: %w", err)
	}
	var outcome map[string]json.RawMessage
	if err := json.Unmarshal(fields[workflow.BatchOutcomeKey], &outcome); err != nil {
		return nil, fmt.Errorf("read the outcome of a batchable step: %w", err)
	}
	delete(outcome, "cursor_configs")
	doc, err := json.Marshal(outcome)
	if err != nil {
		return nil, fmt.Errorf("encode the outcome of a batchable step: %w", err)
	}
	fields[workflow.BatchOutcomeKey] = doc
	return json.Marshal(fields)
}

func (b *board) SendsSignals() bool { return true }

// encode returns a checkpoint in its stored form.
func (c *Checkpoint) encode(at time.Time) (json.RawMessage, error) {
	p := engine.Checkpoint{Items: c.Items, Timestamp: at}
	var err error
	if p.Cursor, err = encode(c.Cursor); err != nil {
		return nil, fmt.Errorf("encode the cursor of the checkpoint: %w", err)
	}
	if c.Accumulated != nil {
		if p.Accumulated, err = encode(c.Accumulated); err != nil {
			return nil, fmt.Errorf("encode the accumulated results of the checkpoint: %w", err)
		}
	}
	return json.Marshal(p)
}

func checkpointOf(p *store.Checkpoint) Checkpoint {
	c := Checkpoint{Cursor: p.Cursor, Items: p.Items}
	if p.Accumulated != nil {
		c.Accumulated = p.Accumulated
	}
	return c
}
