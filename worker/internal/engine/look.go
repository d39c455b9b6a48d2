package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// maxClaim bounds the steps of one claim; a full one is followed by another.
const maxClaim = 500

// Look implements coordinator.Work: it claims as many steps as there is room for and
// starts them. It is never called concurrently.
func (e *Engine) Look(ctx context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
	awaited := e.slots.awaited()
	out, err := e.look(ctx, w)
	if awaited { // yielded steps continue behind the found ones
		e.follow(e.slots.resume())
	}
	if e.cfg.Report.Breaker.Wait() == 0 && e.slots.usage().Waiting > e.cfg.Prefetch && (out.RetryIn == 0 || out.RetryIn > maxAheadAge) {
		out.RetryIn = maxAheadAge // to hand back what still waits then
	}
	return out, err
}

func (e *Engine) look(ctx context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
	out := coordinator.Outcome{NextDue: coordinator.NoDue}
	e.giveBackStale(ctx)
	_, changed := w.Topics[signal.TopicControl]
	if changed || w.Everywhere {
		e.board.ForgetPlanNames()
	}
	if w.Everywhere {
		e.board.LookFromBeginning()
		e.cfg.Report.Breaker.Retry()
	}
	if changed || w.CatchUp {
		e.queues.kick()
		e.BeatSoon() // an operator may have called off what runs here
	}
	if wait := e.cfg.Report.Breaker.Wait(); wait > 0 {
		out.RetryIn = min(wait, deploymode.LongestHold) // an outcome could not be reported now
		return out, nil
	}
	room := e.slots.room()
	if room == 0 || e.queues.none() {
		return out, nil
	}
	if e.queues.reofferNew() {
		e.BeatSoon() // reports the new offer
	}
	suspect, err := e.lookSuspect(ctx, &out)
	want := min(room-suspect.found, maxClaim)
	if err != nil || want == 0 {
		out.Found, out.More = suspect.found, err == nil && e.slots.owe()
		return out, err
	}
	limited, err := e.lookLimited(ctx, want, w.Everywhere, &out)
	retry := out.RetryIn
	var got haul
	switch {
	case err != nil || limited.found == want:
	case !w.Everywhere && e.scans.overdue(time.Now()):
		got, err = e.claimAll(ctx, want-limited.found)
	default:
		got, err = e.claimFromMarks(ctx, want-limited.found, limited.found, w.Everywhere, &out)
	}
	if err == nil && limited.found < want {
		e.limitedAlone = got.found == 0
	}
	got.add(limited)
	out.Found = got.found + suspect.found
	if retry > 0 && (out.RetryIn == 0 || retry < out.RetryIn) {
		out.RetryIn = retry
	}
	if got.rest&store.RestLocked != 0 {
		out.SoonerRetry(lockedRetry, coordinator.MissingLocked)
	}
	if e.slots.looked(err == nil && !got.all(want)) {
		out.Waited = got.waited
	}
	e.suspects.retry(e.slots, &out)
	if got.all(want) {
		out.More = e.slots.owe() || out.More // or when a permit is free
	}
	return out, err
}

// Receive records where a signal says there is something to claim. It must be called
// before the signal wakes the worker, which one that it takes must not: a signal to workers
// whose claims were revoked is answered by a heartbeat of these, and by nothing of the others.
func (e *Engine) Receive(received signal.Signal) (taken bool) {
	if workers, ok := received.Revokes(); ok {
		if slices.Contains(workers, e.id().String()) {
			e.BeatSoon()
		}
		return true
	}
	if e.board.HearLanes(received) {
		e.queues.kick()
	}
	return false
}

// inTurn starts with a random callable, so that a long line does not starve the others.
// Random, because turns could synchronize with the looks.
func inTurn(callables []int32) []int32 {
	if len(callables) < 2 {
		return callables
	}
	first := rand.IntN(len(callables))
	return append(slices.Clone(callables[first:]), callables[:first]...)
}

// giveBackStale hands back steps claimed ahead of handlers that have become slow: other
// workers may have free permits.
func (e *Engine) giveBackStale(ctx context.Context) {
	stale := e.slots.stale(time.Now())
	if len(stale) == 0 {
		return
	}
	if err := e.handBack(ctx, stale); err != nil {
		e.log.Warn("steps claimed ahead were not handed back; they run here", zap.Error(err))
		e.follow(e.slots.add(stale))
		return
	}
	e.log.Debug("handed back steps claimed ahead", zap.Int("steps", len(stale)))
}

// lockedRetry is the delay before a look is repeated that skipped steps whose rows were
// locked: most transactions hold them for a round trip.
const lockedRetry = 5 * time.Millisecond

// haul is the result of one or several claims.
type haul struct {
	found  int
	rest   store.Rest
	waited time.Duration // the longest time a step was in line
}

func (h *haul) add(other haul) {
	h.found, h.rest, h.waited = h.found+other.found, h.rest|other.rest, max(h.waited, other.waited)
}

// all reports whether the worker got all it may have now: there can be more for permits
// that come back.
func (h *haul) all(want int) bool { return h.found == want || h.rest&store.RestLast != 0 }

// claimFromMarks looks from the marks, then everywhere if that gave less than wanted and
// a full scan is allowed or must be made; if it is not allowed yet, out says when. before is how
// many limited steps the look has claimed. The marks come first even where everything is looked
// at: what they give runs also if a full scan takes too long.
func (e *Engine) claimFromMarks(ctx context.Context, want, before int, everywhere bool, out *coordinator.Outcome) (haul, error) {
	got, err := e.claim(ctx, want, false)
	if err != nil || got.all(want) {
		return got, err
	}
	if wait := e.scans.wait(time.Now(), scanPause(before+got.found)); wait > 0 && !everywhere {
		if out.RetryIn = wait; before+got.found == 0 {
			out.Missing = coordinator.MissingUnseen
		}
		return got, nil
	}
	more, err := e.claimAll(ctx, want-got.found)
	got.add(more)
	return got, err
}

// claimAll looks everywhere, and once more if the claim reported new callables that the
// worker can run, or limits that have come or gone.
func (e *Engine) claimAll(ctx context.Context, want int) (haul, error) {
	begin := time.Now()
	got, err := e.claim(ctx, want, true)
	e.scans.ends(begin, time.Now(), got.found >= want, err)
	if err == nil && e.queues.learn() && got.found < want {
		var more haul
		more, err = e.claim(ctx, want-got.found, true)
		got.add(more)
	}
	return got, err
}

// lookLimited claims steps of limited callables for half of the permits and of what may be claimed ahead,
// for seven eighths while the worker finds no others, or for all while it does not look for any: neither
// kind waits for the other to run dry. A step claimed ahead counts as running, so there must be
// callables with room for some.
func (e *Engine) lookLimited(ctx context.Context, want int, everywhere bool, out *coordinator.Outcome) (got haul, err error) {
	free, limited, ahead := e.queues.claimable()
	if len(limited) == 0 {
		return got, nil
	}
	permits, beyond := e.slots.atOnce(want), 0
	if ahead {
		beyond = want - permits
	}
	now := time.Now()
	switch {
	case len(free) == 0 || e.limitedAlone && !everywhere && !e.scans.overdue(now) && !e.board.ExpectsSteps(free):
	case permits == 1 && !e.limitedAlone && !everywhere && rand.IntN(2) == 0: // the others' turn
		out.RetryIn = lockedRetry
		return got, nil
	case e.limitedAlone:
		permits, beyond = permits-permits/8, beyond-(beyond+7)/8
	default:
		permits, beyond = (permits+1)/2, beyond/2
	}
	if permits+beyond == 0 {
		return got, nil
	}
	request := e.claimRequest(permits+beyond, limited)
	request.Ahead = beyond
	full := everywhere || e.limitedScans.overdue(now)
	got, known, err := e.claimLimited(ctx, request, full, out)
	if err != nil || full || known || got.found >= permits {
		return got, err
	}
	if wait := e.limitedScans.wait(now, scanPause(got.found)); wait > 0 {
		out.RetryIn = wait
		return got, nil
	}
	request.Limit -= got.found
	more, _, err := e.claimLimited(ctx, request, true, out)
	got.add(more)
	return got, err
}

// claimLimited claims limited steps; known says that others wait.
func (e *Engine) claimLimited(ctx context.Context, request store.ClaimRequest, full bool, out *coordinator.Outcome) (got haul, known bool, err error) {
	begin, again, unsorted := time.Now(), time.Duration(-1), false
	got, err = e.claimBy(ctx, request, func(ctx context.Context, request store.ClaimRequest) (claimed []store.Claimed, rest store.Rest, err error) {
		claimed, rest, again, err = e.board.ClaimLimited(ctx, request, full)
		unsorted = rest&store.RestUnsorted != 0
		return claimed, rest & store.RestSuspects, err
	})
	if full {
		e.limitedScans.ends(begin, time.Now(), got.found >= request.Limit, err)
		if err == nil && e.queues.learn() {
			e.cfg.Wake()
		}
	}
	if err != nil {
		return got, false, err
	}
	again = e.full.patience(again, got.found)
	if again < 0 {
		return got, false, nil
	}
	e.slots.oweAtEnd()
	switch {
	case again > 0:
		out.RetryIn = again
	case got.found == request.Limit:
		out.More = e.slots.owe()
	case got.found < request.Limit-request.Ahead:
		out.RetryIn = lockedRetry
	}
	if unsorted || len(e.queues.acting()) > 0 {
		lifecycle.Nudge(e.unsorted) // the loop has yet to begin
	}
	return got, true, nil
}

// fullKeys makes a worker ask less often for steps of keys that stay full. The end of one of its own steps, and each
// signal, make it ask at once.
type fullKeys struct{ looks int }

// longestFull is the longest pause between two questions for steps of full keys.
const longestFull = 2 * time.Second

// patience is after how long to ask again where the store says again: it doubles with each look that finds nothing, but
// where it is known when there is room.
func (f *fullKeys) patience(again time.Duration, found int) time.Duration {
	if found > 0 || again < store.LimitedPatience {
		f.looks = 0
		return again
	}
	f.looks++
	return min(again<<min(f.looks-1, 8), longestFull)
}

// scanPause is the least time between two full scans of a look that has found so much.
func scanPause(found int) time.Duration {
	if found == 0 {
		return emptyPause
	}
	return partPause
}

// beyondPatience is after how long a worker looks for steps beyond limits that let none wait,
// although it has not claimed: it may have no free permit.
const beyondPatience = time.Second

// tendLimits does beside the claims what limits need.
func (e *Engine) tendLimits(ctx context.Context) error {
	ticker := time.NewTicker(beyondPatience)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.unsorted:
			_, limited, _ := e.queues.claimable()
			e.sortLimited(ctx, limited)
			e.cfg.Wake() // a claim may have seen nothing to wait for while they were sorted
		case <-ticker.C:
			e.sortLimited(ctx, e.queues.acting()) // as a claim does
		}
		acting := e.queues.acting()
		if len(acting) == 0 {
			continue
		}
		done, err := e.board.ActBeyond(ctx, acting)
		if err != nil && ctx.Err() == nil {
			e.log.Warn("acting on steps beyond limits failed; it is tried again", zap.Error(err))
		}
		if len(done.Signals) > 0 {
			e.signal(done.Signals...)
		}
		for what, steps := range done.Count() {
			e.metrics.BeyondLimits.WithLabelValues(string(what)).Add(float64(steps))
		}
	}
}

// sortLimited sorts limited steps while there are more than claims sort: the steps of all
// other keys would wait behind a flood of one.
func (e *Engine) sortLimited(ctx context.Context, limited []int32) {
	for _, callable := range limited {
		for more := true; more && ctx.Err() == nil; {
			var err error // without more
			if more, err = e.board.SortLimited(ctx, callable, e.rejected.claims.Held()); err != nil && ctx.Err() == nil {
				e.log.Warn("sorting limited steps failed; the next claim sorts some", zap.Error(err))
			}
		}
	}
}

// claim claims steps and starts those for which there is a permit.
func (e *Engine) claim(ctx context.Context, want int, full bool) (got haul, err error) {
	free, _, _ := e.queues.claimable()
	request := e.claimRequest(want, free)
	request.Ahead = e.slots.beyond(want)
	return e.claimBy(ctx, request, func(ctx context.Context, request store.ClaimRequest) ([]store.Claimed, store.Rest, error) {
		return e.board.Claim(ctx, request, full)
	})
}

// claiming claims what a request asks for.
type claiming func(ctx context.Context, request store.ClaimRequest) ([]store.Claimed, store.Rest, error)

func (e *Engine) claimBy(ctx context.Context, request store.ClaimRequest, claim claiming) (got haul, err error) {
	// The end of a look must not abort a claim whose answer is under way: the steps would
	// be claimed until the lease ends without the worker knowing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.Lease/2)
	defer cancel()
	e.giveBackUnknown(ctx)
	before := e.unknown.begin()
	defer e.unknown.end()
	begin := time.Now()
	leaseEnd := begin.Add(e.cfg.Lease)
	batch := e.cfg.Tracer.Batch()
	claimed, rest, err := claim(ctx, request)
	if store.Rejected(err) && e.setAside(ctx, &request, err) {
		claimed, rest, err = claim(ctx, request)
	}
	if store.Rejected(err) {
		claimed, rest, err = e.claimApart(ctx, request, claim, before, err)
	}
	if err != nil {
		e.unknown.lose(request.Worker, before)
		return got, fmt.Errorf("claim up to %d steps: %w", request.Limit, err)
	}
	got.found, got.rest = len(claimed), rest
	e.suspects.seen(rest)
	for i := range claimed {
		got.waited = max(got.waited, claimed[i].ClaimedAt.Sub(claimed[i].EnqueuedAt))
		batch.Add(claimed[i].Trace, claimed[i].TaskUUID)
	}
	e.cfg.Tracer.Done(&batch, "claim", nil)
	e.slots.claimed(&request, claimed, rest, time.Since(begin))
	if len(claimed) > 0 {
		e.take(ctx, request.Worker, claimed, leaseEnd)
	}
	return got, nil
}

// Adopt takes over claims of other workers, in some namespaces or all, whose handlers go on
// in processes that are connected to this worker now. learn gets their tokens, the new ones by the former, before
// any of them begins here. It reports whether some were locked and should be asked for again.
// After an error some may be adopted: they are handed back.
func (e *Engine) Adopt(ctx context.Context, held []store.HeldClaim, namespaces []string, learn func(tokens map[int64]int64)) (locked bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.Lease/2)
	defer cancel()
	before := e.unknown.begin()
	defer e.unknown.end()
	worker, leaseEnd := e.id(), time.Now().Add(e.cfg.Lease)
	adopted, locked, err := e.board.Adopt(ctx, worker, held, namespaces, e.cfg.Lease)
	if store.Rejected(err) {
		adopted, locked, err = e.adoptApart(ctx, worker, held, namespaces, err)
	}
	if err != nil {
		e.unknown.lose(worker, before)
		return false, fmt.Errorf("adopt %d claims: %w", len(held), err)
	}
	claimed, tokens := make([]store.Claimed, len(adopted)), make(map[int64]int64, len(adopted))
	for i := range adopted {
		claimed[i], tokens[adopted[i].Former] = adopted[i].Claimed, adopted[i].Token
	}
	learn(tokens)
	e.unknown.took(claimed)
	e.follow(e.slots.add(e.prepare(ctx, worker, claimed, leaseEnd)))
	return locked, nil
}

// adoptApart adopts claims that the database rejects together, without those at fault, which are
// lost to their processes.
func (e *Engine) adoptApart(ctx context.Context, worker uuid.UUID, held []store.HeldClaim, namespaces []string, why error) (adopted []store.Adopted, locked bool, err error) {
	err = aside.Halves(held, why, store.Rejected, func(part []store.HeldClaim) error {
		some, someLocked, err := e.board.Adopt(ctx, worker, part, namespaces, e.cfg.Lease)
		adopted, locked = append(adopted, some...), locked || someLocked
		return err
	}, func(h store.HeldClaim, why error) {
		e.rejected.claims.Reject(h.TaskUUID, why, zap.Stringer("task_uuid", h.TaskUUID))
	})
	return adopted, locked, err
}

func (e *Engine) claimRequest(limit int, callables []int32) store.ClaimRequest {
	request := store.ClaimRequest{Worker: e.id(), Callables: inTurn(callables), Tags: e.cfg.Tags, Limit: limit, Lease: e.cfg.Lease,
		BesideSuspect: e.slots.hasSuspect(), Except: e.rejected.claims.Held()}
	if held := e.rejected.callables.Held(); len(held) > 0 {
		request.Callables = slices.DeleteFunc(slices.Clone(request.Callables), func(c int32) bool { return slices.Contains(held, c) })
	}
	return request
}

// take starts claims for which there is a permit; the others wait.
func (e *Engine) take(ctx context.Context, worker uuid.UUID, claimed []store.Claimed, leaseEnd time.Time) {
	e.unknown.took(claimed)
	claimed = e.readable(ctx, claimed)
	e.count.claimed.Add(uint64(len(claimed)))
	e.countClaimed(claimed)
	e.follow(e.slots.add(e.prepare(ctx, worker, claimed, leaseEnd)))
}

func (e *Engine) countClaimed(claimed []store.Claimed) {
	perQueue := make(map[int32]int, 1)
	for i := range claimed {
		perQueue[claimed[i].Queue]++
	}
	for queue, n := range perQueue {
		e.metrics.StepsClaimed.WithLabelValues(e.metrics.Named("namespace", e.queues.name(queue))).Add(float64(n))
	}
}

// Rules for full scans. A scan from the marks misses new lanes and steps that became
// visible behind a mark; a full scan sees everything and may be slow while old row
// versions lie in front of the queue. A poll and a catch-up make one in any case.
const (
	// fullScanShare: the time between two full scans is this multiple of the first one's
	// duration, so that they take about 5 % of the time, up to deploymode.LongestHold.
	fullScanShare = 20
	// emptyPause is the time between two full scans of a worker that was signalled and
	// found nothing: most likely another worker was faster, but it may be the first step
	// of a new lane.
	emptyPause = 10 * time.Millisecond
	// partPause is the time between two full scans of a worker that finds work from its
	// marks, only less than it could take: there is hardly ever more.
	partPause = 100 * time.Millisecond
	// fullScanEvery is how long a worker that always finds enough work goes without a
	// full scan: a new lane may hold work of a higher priority.
	fullScanEvery = deploymode.LongestHold
)

// fullScans decides when a full scan may be made. The zero value has made none.
type fullScans struct {
	ended time.Time
	// took is the shorter of the latest two: a slow scan may have had to prepare its
	// statement or wait for a busy machine.
	took   time.Duration
	latest time.Duration
	rich   bool // the latest one filled its limit, so there may be more
}

// wait returns the time until the next full scan is allowed; 0: now. pause is the least
// time between two. After a scan that left work any is allowed: a backlog may be spread
// thinly over more lanes than scans from the marks read.
func (f fullScans) wait(now time.Time, pause time.Duration) time.Duration {
	if f.ended.IsZero() || f.rich {
		return 0
	}
	return max(max(min(fullScanShare*f.took, deploymode.LongestHold), pause)-now.Sub(f.ended), 0)
}

// overdue reports whether a full scan should precede the scan from the marks.
func (f fullScans) overdue(now time.Time) bool {
	return f.ended.IsZero() || now.Sub(f.ended) >= fullScanEvery
}

// ends records a full scan. rich says that it filled its limit. How long a failed one took
// says nothing about the next, which may follow at once; but it does not precede the marks: the
// scan may have failed because it is slow, and there may be work at the marks.
func (f *fullScans) ends(begin, end time.Time, rich bool, err error) {
	if err != nil {
		*f = fullScans{ended: end}
		return
	}
	took := end.Sub(begin)
	f.rich = rich
	if f.ended.IsZero() {
		f.took = min(took, representative) // the very first one is not
	} else {
		f.took = min(took, f.latest)
	}
	f.ended, f.latest = end, took
}

// representative is the longest that the very first full scan counts for: it prepares its
// statement.
const representative = 5 * time.Millisecond

// leftFor is how long a worker does not claim a callable for which it found no handler.
const leftFor = 10 * time.Second

// HandBack hands back a step whose handler did nothing, and repeats that while the database
// is unavailable and the step may run. It reports whether that worked.
func (x *Execution) HandBack() bool {
	return x.giveUp(func() error { return x.engine.handBack(&x.Ctx, []*Execution{x}) })
}

// giveUp ends the claim of an execution, and repeats that while the database is unavailable.
func (x *Execution) giveUp(end func() error) bool {
	for n := 0; ; n++ {
		err := end()
		if err == nil {
			return true
		}
		if !errors.Is(err, store.ErrUnavailable) || pause(&x.Ctx, n, 0) != nil {
			x.engine.log.Warn("a step that another process was to run was not handed back", zap.Inline(x), zap.Error(err))
			return false
		}
	}
}

// Leave hands back a step for which the accepting resolver found no handler, if another
// worker offers its callable: no attempt is used, and this worker does not claim the
// callable for a while.
func (x *Execution) Leave(why error) bool {
	e := x.engine
	plan, err := e.board.PlanByID(&x.Ctx, x.Claim.PlanID) // in the cache: its job is known
	if err != nil {
		return false
	}
	callable := plan.Callables[x.Claim.PlanStep()]
	if e.queues.offering(callable) { // else it was claimed before its offer ended
		others, err := e.board.OthersOffer(&x.Ctx, x.worker, callable, e.cfg.Lease)
		if err != nil || !others {
			return false
		}
	}
	e.queues.leave(callable, time.Now().Add(leftFor))
	e.BeatSoon() // so that others do not rely on this worker
	if err := e.handBack(&x.Ctx, []*Execution{x}); err != nil {
		e.log.Debug("a step was not left to others", zap.Error(err))
		return false
	}
	e.log.Warn("left a step to other workers: its handler was not found in this worker", zap.Inline(x), zap.Duration("for", leftFor), zap.Error(why))
	return true
}
