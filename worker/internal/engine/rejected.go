package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
)

// What the database rejects of a worker's statements, see package aside. Outcomes and
// checkpoints that it rejects are handled where they are delivered.

// rejected are the rows that the worker leaves out.
type rejected struct {
	claims *aside.Set[uuid.UUID] // tasks
	beats  *aside.Set[int64]     // tokens of claims whose leases cannot be extended
	// callables are those of which nothing can be claimed, as where a key of a limit cannot be read.
	callables *aside.Set[int32]
	resend    chan struct{} // of capacity 1: an item waits to be sent again
}

func newRejected(e *Engine) rejected {
	return rejected{claims: aside.New[uuid.UUID]("claims", e.log, e.metrics), beats: aside.New[int64]("heartbeats", e.log, e.metrics),
		callables: aside.New[int32]("callables", e.log, e.metrics), resend: make(chan struct{}, 1)}
}

// setAside finds the steps for which the database rejects claims, and sets their tasks aside. It
// reports whether it has found any: the request then leaves them out.
func (e *Engine) setAside(ctx context.Context, request *store.ClaimRequest, why error) (found bool) {
	e.log.Warn("the database rejected a claim; looking for the step at fault", zap.Error(why))
	err := e.board.RejectedClaims(ctx, *request, why, func(step store.WaitingStep, why error) {
		found = true
		blamed := e.rejected.claims.Reject(step.TaskUUID, why, zap.Stringer("task_uuid", step.TaskUUID),
			zap.String("namespace", step.Namespace), zap.String("callable", step.Callable))
		if !blamed {
			return
		}
		f := FailureOf(unreadable(why))
		signals, err := e.board.FailWaiting(ctx, step.RowKey, f.encode())
		if err != nil {
			e.log.Error("a step that cannot be claimed cannot be ended either; it is unchanged", zap.Stringer("task_uuid", step.TaskUUID), zap.Error(err))
			return
		}
		e.signal(signals...)
		e.log.Error("a step that cannot be claimed has ended as failed", zap.Stringer("task_uuid", step.TaskUUID))
	})
	if err != nil {
		e.log.Warn("no step was found at fault for a rejected claim", zap.Error(err))
	}
	request.Except = e.rejected.claims.Held()
	return found
}

// claimApart claims for halves of the callables what the database rejects for all of them, though no step is at fault,
// and sets those aside for which it rejects it alone. Where it rejects all, none is at fault.
// before is less than the tokens of what it claims.
func (e *Engine) claimApart(ctx context.Context, request store.ClaimRequest, claim claiming, before int64, why error) (claimed []store.Claimed, rest store.Rest, err error) {
	passed, culprits := 0, map[int32]error{}
	err = aside.Halves(request.Callables, why, store.Rejected, func(part []int32) error {
		some := request
		if some.Callables, some.Limit = part, request.Limit-len(claimed); some.Limit <= some.Ahead {
			return nil // they come with the next claim
		}
		got, left, err := claim(ctx, some)
		if err == nil {
			claimed, rest, passed = append(claimed, got...), rest|left, passed+1
		}
		return err
	}, func(callable int32, why error) { culprits[callable] = why })
	if passed == 0 {
		return nil, 0, cmp.Or(err, why)
	}
	if err != nil { // what has passed is held
		e.unknown.lose(request.Worker, before)
	}
	e.rejected.callables.Pass()
	for callable, why := range culprits {
		e.rejected.callables.Reject(callable, why, zap.Int32("callable_id", callable))
	}
	return claimed, rest, nil
}

// unreadable is the failure of a step that the database does not give to the worker.
func unreadable(why error) error {
	return Permanent(Errorf(TypeStepUnreadable, "the database rejects claims of the step (SQLSTATE %s); the log of the workers has the details", sqlState(why)))
}

// readable hands back claims whose inputs the database could not read. Those of tasks that are to
// blame are kept, and fail.
func (e *Engine) readable(ctx context.Context, claimed []store.Claimed) []store.Claimed {
	var back []store.ClaimKey
	kept := claimed // a copy only where a claim is left out: claims are large
	for i := range claimed {
		c := &claimed[i]
		if c.Unreadable != nil && !e.rejected.claims.Reject(c.TaskUUID, c.Unreadable, zap.Stringer("task_uuid", c.TaskUUID),
			zap.String("namespace", e.queues.name(c.Queue)), zap.Int("step_no", c.Step)) {
			if back == nil {
				kept = slices.Clone(claimed[:i])
			}
			back = append(back, c.Key())
		} else if back != nil {
			kept = append(kept, *c)
		}
	}
	if len(kept) > 0 {
		e.rejected.claims.Pass()
	}
	if len(back) == 0 {
		return kept
	}
	signals, err := e.board.HandBack(ctx, back)
	if err != nil {
		e.log.Warn("steps with unreadable inputs were not handed back; they wait for the ends of their leases", zap.Int("steps", len(back)), zap.Error(err))
		return kept
	}
	e.publisher.Publish(signals...)
	return kept
}

// extend sends a heartbeat that was rejected again, without the claims at fault.
func (h *heartbeat) extend(ctx context.Context, held []store.ClaimKey, why error) (lost []int64, extended []store.ClaimKey, err error) {
	e := h.e
	send := func(part []store.ClaimKey) error {
		some, err := e.board.WorkerHeartbeat(ctx, e.describe(), part, e.cfg.Lease)
		if err == nil {
			lost, extended = append(lost, some...), append(extended, part...)
		}
		return err
	}
	if err := send(nil); err != nil || len(held) == 0 {
		return nil, nil, errors.Join(why, err) // it is not about claims
	}
	rejects := func(err error) bool { return store.Rejected(err) && !errors.Is(err, store.ErrWorkerDead) }
	err = aside.Halves(held, why, rejects, send, func(k store.ClaimKey, why error) {
		e.rejected.beats.Reject(k.Token, why, zap.Stringer("task_uuid", k.TaskUUID), zap.Int("step_no", k.Step))
	})
	if len(extended) > 0 {
		e.rejected.beats.Pass()
	}
	return lost, extended, err
}

// resends sends rejected outcomes and checkpoints again when their time has come.
func (e *Engine) resends(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		next := e.reporter.resend(now)
		if other := e.saver.resend(now); next == 0 || other > 0 && other < next {
			next = other
		}
		timer.Reset(cmp.Or(next, time.Hour))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-e.rejected.resend:
		}
	}
}

// rejectedFor is how long the database may reject all outcomes before the worker is unready.
const rejectedFor = time.Minute

// Rejects reports why the worker is unready although the database answers: it has rejected all
// outcomes of the last minute. "" without a reason.
func (e *Engine) Rejects() string {
	if since := e.reporter.aside.Since(); since >= rejectedFor {
		return fmt.Sprintf("the database has rejected all outcomes of steps for %v; the log says why", since.Round(time.Second))
	}
	return ""
}

// sendAgain wakes the loop of resends.
func (e *Engine) sendAgain() { lifecycle.Nudge(e.rejected.resend) }
