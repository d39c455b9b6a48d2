package engine

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/tasker-go/tasker/internal/store"
)

// Inputs bounds the inputs that are too large to come with a claim (store.MaxInClaim).
type Inputs struct {
	MaxBytes   int64 // of one step; a step with more fails
	TotalBytes int64 // of all such steps whose handlers run
}

// inputs reads large inputs when their handlers are about to begin, one step after the other.
type inputs struct {
	Inputs
	turn   chan struct{}       // capacity 1: who reads
	memory *semaphore.Weighted // bytes of those read
}

func newInputs(of Inputs) inputs {
	of.TotalBytes = max(of.TotalBytes, of.MaxBytes) // or none could be read
	return inputs{Inputs: of, turn: make(chan struct{}, 1), memory: semaphore.NewWeighted(of.TotalBytes)}
}

// readInputs reads the inputs of a step, once there is memory for them; free gives that back. The time
// limit of the handler starts anew then. While the database is unavailable it retries until the claim is
// lost or the worker ends.
func (e *Engine) readInputs(x *Execution) (free func(), err error) {
	e.slots.waits(x, true)
	defer e.slots.waits(x, false)
	in := &e.inputs
	if err := in.memory.Acquire(&x.Ctx, in.MaxBytes); err != nil {
		return nil, fmt.Errorf("wait for the memory of inputs: %w", context.Cause(&x.Ctx))
	}
	taken := in.MaxBytes
	free = func() { in.memory.Release(taken) }
	select {
	case in.turn <- struct{}{}:
		defer func() { <-in.turn }()
	case <-x.Ctx.Done():
		free()
		return nil, context.Cause(&x.Ctx)
	}
	bytes, err := e.fetchInputs(x)
	if err != nil {
		free()
		return nil, err
	}
	e.metrics.InputsRead.Add(float64(bytes))
	if bytes < taken {
		in.memory.Release(taken - bytes)
		taken = bytes
	}
	return free, nil
}

// tooLarge is the failure of a step whose inputs have so many bytes.
func (in *inputs) tooLarge(bytes int64) error {
	return Permanent(Errorf(TypeInputsTooLarge, "the inputs of the step have %d bytes: want at most %d (worker.inputs.max_bytes)", bytes, in.MaxBytes))
}

// errHandedBack: the database rejects the inputs of a step, which is set aside.
var errHandedBack = errors.New("the step was handed back")

// fetchInputs reads them, and returns how many bytes of JSON they have.
func (e *Engine) fetchInputs(x *Execution) (int64, error) {
	most := e.inputs.MaxBytes
	for n := 0; ; n++ {
		stored, err := e.board.Inputs(&x.Ctx, &x.Claim, most)
		switch {
		case err == nil:
			bytes := x.Claim.InputBytes()
			if x.Claim.Large || bytes > most {
				return 0, e.inputs.tooLarge(max(stored, bytes))
			}
			return bytes, nil
		case store.Rejected(err):
			if !e.rejected.claims.Reject(x.Claim.TaskUUID, err, zap.Stringer("task_uuid", x.Claim.TaskUUID), zap.Int("step_no", x.Claim.Step)) && x.HandBack() {
				return 0, errHandedBack // others may be rejected too: it is not to blame yet
			}
			return 0, unreadable(err)
		case !errors.Is(err, store.ErrUnavailable):
			return 0, fmt.Errorf("read the inputs of the step: %w", err)
		}
		if err := pause(&x.Ctx, n, 0); err != nil {
			return 0, err
		}
	}
}
