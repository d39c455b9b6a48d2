package worker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// maxClaim bounds the steps of one claim; a full one is followed by another.
const maxClaim = 500

// Look implements coordinator.Work: it claims as many steps as there is room
// for and sets them going. It is never called twice at once.
func (e *engine) Look(ctx context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
	awaited := e.slots.awaited()
	out, err := e.look(ctx, w)
	if awaited { // what has yielded goes on behind what was found
		e.resume()
	}
	if e.cfg.Report.Breaker.Wait() == 0 && e.slots.usage().waiting > e.cfg.Prefetch && (out.RetryIn == 0 || out.RetryIn > maxAheadAge) {
		out.RetryIn = maxAheadAge // to give back what still waits then
	}
	return out, err
}

func (e *engine) look(ctx context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
	out := coordinator.Outcome{NextDue: coordinator.NoDue}
	e.giveBackStale(ctx)
	if _, changed := w.Topics[signal.TopicControl]; changed || w.Reason == coordinator.ReasonCatchUp {
		e.board.ForgetPlanNames()
		e.queues.kick()
		e.beat() // an operator may have called off what runs here
	}
	if wait := e.cfg.Report.Breaker.Wait(); wait > 0 {
		out.RetryIn = wait // what is run now could not be reported
		return out, nil
	}
	room := e.slots.room()
	queues := e.queues.ids()
	if room == 0 || len(queues) == 0 {
		return out, nil
	}
	queues = inTurn(queues)
	want := min(room, maxClaim)
	eager := w.Reason == coordinator.ReasonCatchUp || w.Reason == coordinator.ReasonPoll
	var err error
	if now := time.Now(); e.scans.overdue(now) || eager && e.scans.suffices(now) {
		out.Found, err = e.claimAll(ctx, queues, want)
	} else {
		out.Found, out.RetryIn, err = e.claimFromMarks(ctx, queues, want, eager)
	}
	e.scans.quiet = out.Found == 0
	e.slots.looked(err == nil && out.Found < want)
	if out.Found == want {
		out.More = e.slots.owe() // or when a permit comes back
	}
	return out, err
}

// inTurn begins with any of the queues, so that a long one does not keep the
// others waiting. Chance, because turns could fall into step with the looks.
func inTurn(queues []int32) []int32 {
	first := rand.IntN(len(queues))
	return append(slices.Clone(queues[first:]), queues[:first]...)
}

// giveBackStale hands back what was claimed ahead of handlers that have become
// slow: others may have permits free.
func (e *engine) giveBackStale(ctx context.Context) {
	stale := e.slots.stale(time.Now())
	if len(stale) == 0 {
		return
	}
	if err := e.handBack(ctx, stale); err != nil {
		e.log.Warn("steps claimed ahead were not handed back; they run here", zap.Error(err))
		for _, x := range e.slots.add(stale) {
			e.start(x)
		}
		return
	}
	e.log.Debug("handed back steps claimed ahead", zap.Int("steps", len(stale)))
}

// claimFromMarks looks where work was last, then everywhere where that gave
// less than wanted and a full scan may be made; if it may not yet, retryIn says
// when.
func (e *engine) claimFromMarks(ctx context.Context, queues []int32, want int, eager bool) (found int, retryIn time.Duration, err error) {
	found, err = e.claim(ctx, queues, want, false)
	if err != nil || found == want {
		return found, 0, err
	}
	pause := partPause
	if eager {
		pause = 0
	} else if found == 0 {
		pause = emptyPause
	}
	if retryIn = e.scans.wait(time.Now(), pause); retryIn > 0 {
		return found, retryIn, nil
	}
	more, err := e.claimAll(ctx, queues, want-found)
	return found + more, 0, err
}

func (e *engine) claimAll(ctx context.Context, queues []int32, want int) (int, error) {
	begin := time.Now()
	found, err := e.claim(ctx, queues, want, true)
	e.scans.made(begin, time.Now())
	return found, err
}

// claim takes steps and sets those going for which there is a permit.
func (e *engine) claim(ctx context.Context, queues []int32, want int, full bool) (int, error) {
	// The end of a look must not tear a claim whose answer is on its way: the
	// steps would be ours until the lease ends, and we would not know.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.Lease/2)
	defer cancel()
	begin := time.Now()
	leaseEnd := begin.Add(e.cfg.Lease)
	claimed, standings, err := e.claimSteps(ctx, e.claimRequest(queues, want), full)
	if err != nil {
		return 0, fmt.Errorf("claim up to %d steps: %w", want, err)
	}
	if len(claimed) == 0 {
		return 0, nil
	}
	e.slots.claimTook(time.Since(begin))
	e.take(ctx, claimed, standings, leaseEnd)
	return len(claimed), nil
}

func (e *engine) claimRequest(queues []int32, limit int) store.ClaimRequest {
	return store.ClaimRequest{Worker: e.id.get(), Queues: queues, Tags: e.cfg.Tags, Limit: limit, Lease: e.cfg.Lease}
}

// take sets claims going for which there is a permit; the others wait.
// standings goes with claimed and may be nil.
func (e *engine) take(ctx context.Context, claimed []store.Claimed, standings []*store.Standing, leaseEnd time.Time) {
	e.count.claimed.Add(uint64(len(claimed)))
	e.countClaimed(claimed)
	list := e.prepare(ctx, claimed, leaseEnd)
	for i := range standings {
		list[i].task = standings[i]
	}
	for _, x := range e.slots.add(list) {
		e.start(x)
	}
}

func (e *engine) countClaimed(claimed []store.Claimed) {
	perQueue := make(map[int32]int, 1)
	for i := range claimed {
		perQueue[claimed[i].Queue]++
	}
	for queue, n := range perQueue {
		e.metrics.StepsClaimed.WithLabelValues(e.queues.name(queue)).Add(float64(n))
	}
}
