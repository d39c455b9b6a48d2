package board

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Settlement is the success of a claimed step in the row of its task, with its effects.
// The worker sets Claim, Plan and Result; its rules set Progress and Effects.
type Settlement struct {
	Claim  *Claimed        // its Task is the state of the task
	Result json.RawMessage // storable JSON

	Plan     *registry.Plan
	Progress *workflow.Progress // the new progress
	Effects  *workflow.Effects  // nil: undecided, not settled
}

// Settled answers one Settlement.
type Settled struct {
	// Accepted says that the success and its effects are committed. Otherwise nothing has
	// changed, and it must be reported.
	Accepted bool
	Watched  bool // the task has ended and a client waits for it
	// Next is the following step, if the caller has claimed it now.
	Next *Claimed
	// Lease is the remaining time of that claim: a little less than taker's, or the
	// remainder of the previous claim's, at least half of it.
	Lease time.Duration
}

// maxSettledResult bounds the result that is settled, in bytes; a larger one is
// reported.
const maxSettledResult = 64 << 10

// Settle records successes and their effects in one transaction and one round trip: a
// task ends, or its row continues with the next step. If taker could claim that step, the
// same statement claims it, up to its Limit; in a paused namespace it waits. The answer
// has one entry per settlement, in order.
//
// It accepts only simple cases, of claims of taker's worker: one live step, one or
// none next, no change of the task that must be recorded. The fence is the claim's token,
// and the progress must be the one that it came with. A settlement that is not accepted
// must be sent with Report, which determines whether the claim still holds. After an
// error it may have been committed nevertheless; then that report is rejected, and the
// claimed step is claimable after its lease.
//
// The signals in Committed are to be published unless the store sends them itself; the
// signal that a watched task has ended is always left to the caller.
func (s *Board) Settle(ctx context.Context, taker ClaimRequest, list []Settlement) ([]Settled, Committed, error) {
	w := newSettling(taker, list)
	if len(w.ended) > 0 && s.db.Following.Results() {
		w.topics.Add(signal.TopicEvents)
	}
	done := Committed{NextDue: -1, Signals: s.db.WithTransitions(w.topics.Signals())}
	answers := make([]Settled, len(list))
	if w.empty() {
		return answers, done, nil
	}
	err := s.db.Call(ctx, "settle", "settle results", func(ctx context.Context, db *pg.Conn) error {
		clear(answers) // of a rolled-back try
		w.counted = counted{}
		return s.db.Transact(ctx, db, done.Signals, func(b *pgx.Batch) { w.queue(b, answers) })
	})
	if err != nil {
		return nil, Committed{NextDue: -1}, err
	}
	s.counts.Count(w.attempts, w.ends)
	done.Finished = len(w.ends)
	return answers, done, nil
}

// Fits reports whether Settle accepts it: a result that is not too large, of a claim
// without checkpoints and events, after which the task is complete or continues with one
// step, at once and in the same row.
func (x *Settlement) Fits() bool {
	e := x.Effects
	if e == nil || x.Plan == nil || x.Claim.Task == nil || x.Claim.Slot != 0 || x.Claim.Checkpoint != nil || len(x.Result) > maxSettledResult {
		return false
	}
	if step := x.Plan.Step(x.Progress, x.Claim.Step); step == nil || len(step.Events) > 0 { // published by the apply
		return false
	}
	if len(e.Batches) > 0 || len(e.End) != 1 || e.End[0].Step != x.Claim.Step || e.End[0].Outcome != workflow.OutcomeSuccess || len(e.Retry)+len(e.Remove) > 0 {
		return false
	}
	switch {
	case slices.ContainsFunc(e.Changes, recorded):
		return false
	case e.Finished:
		return len(e.Put) == 0 && e.State == workflow.TaskComplete
	}
	return len(e.Put) == 1 && e.Put[0].DueIn <= 0 && registry.Inlines(x.Plan.Plan, x.Progress, e.Put[0].Step) && inHand(x.Progress) == 1
}

// next returns the following step as the taker will have claimed it; nil if it may not,
// or if some inputs are missing. Token and times are unset.
func (x *Settlement) next(taker *ClaimRequest) *Claimed {
	c, step := x.Claim, &x.Plan.Steps[x.Effects.Put[0].Step]
	if !taker.runs(x.Plan, step) {
		return nil
	}
	parents := x.Plan.ParentsOf(x.Progress, step.No)
	results := make(map[int]json.RawMessage, len(parents))
	for _, no := range parents {
		result, known := c.ParentResults[no]
		if no == c.Step {
			result, known = x.Result, true
		}
		if !known {
			return nil
		}
		results[no] = result
	}
	n := *c
	n.Step, n.Attempt, n.ParentResults, n.Losses, n.LostAfterMs = step.No, 1, results, 0, 0
	n.Task = &Standing{State: x.Effects.State, Progress: x.Progress}
	return &n
}

// settling holds the arguments of Settle's statements and the places of their rows.
type settling struct {
	taker  *ClaimRequest
	list   []Settlement
	ended  []settledClaim
	moved  []settledMove
	next   []*Claimed    // of each settlement
	place  map[int64]int // of each settlement, by the token of its claim
	topics SignalSet
	counted
}

// settledClaim is a claim that ended, with the fence, and the result and the progress to
// record.
type settledClaim struct {
	TaskUUID  uuid.UUID
	StepNo    int `sql:",smallint"`
	Token     int64
	FromState workflow.TaskState
	Before    []byte
	Result    json.RawMessage
	Progress  []byte
}

// settledMove is one whose task continues.
type settledMove struct {
	settledClaim
	TaskState workflow.TaskState
	NextNo    int  `sql:",smallint"`
	Wanted    bool // claimed for the taker
	Heir      bool // its only parent is the step that it follows in the row
	Lane      int16
	Parents   []int
	Tags      []string `sql:",omitzero"`
	// Of the claim that ended.
	Priority   int `sql:",smallint"`
	Attempt    int `sql:",smallint"`
	EnqueuedAt time.Time
	ClaimedAt  time.Time
	// Of what follows.
	Callable    int32
	LastAttempt bool
}

func newSettling(taker ClaimRequest, list []Settlement) *settling {
	w := &settling{taker: &taker, list: list, next: make([]*Claimed, len(list)),
		place: make(map[int64]int, len(list)), topics: SignalSet{}}
	order := make([]int, 0, len(list))
	for i := range list {
		if _, twice := w.place[list[i].Claim.Token]; !twice && list[i].Fits() {
			w.place[list[i].Claim.Token] = i
			order = append(order, i)
		}
	}
	left := taker.Limit
	for _, i := range order {
		if x := &list[i]; left > 0 && !x.Effects.Finished {
			if w.next[i] = x.next(w.taker); w.next[i] != nil {
				left--
			}
		}
	}
	// Rows are locked in one order by all.
	slices.SortFunc(order, func(a, b int) int { return compareClaims(list[a].Claim.Key(), list[b].Claim.Key()) })
	for _, i := range order {
		w.add(i)
	}
	return w
}

func (w *settling) empty() bool { return len(w.place) == 0 }

func (w *settling) add(at int) {
	x := &w.list[at]
	claim := settledClaim{x.Claim.TaskUUID, x.Claim.Step, x.Claim.Token, x.Claim.Task.State, x.Claim.Task.Progress.Encode(), x.Result, x.Progress.Encode()}
	if x.Effects.Finished {
		w.ended = append(w.ended, claim)
		return
	}
	put := x.Effects.Put[0].Step
	step, parents := &x.Plan.Steps[put], x.Plan.ParentsOf(x.Progress, put)
	lane := x.Plan.LaneOf(step, begun(x.Claim.Priority), x.Claim.Context)
	w.moved = append(w.moved, settledMove{settledClaim: claim, TaskState: x.Effects.State, NextNo: put, Wanted: w.next[at] != nil,
		Heir: follows(parents, x.Effects.End[0]), Lane: lane, Parents: parents, Tags: step.Tags, Priority: x.Claim.Priority, Attempt: x.Claim.Attempt,
		EnqueuedAt: x.Claim.EnqueuedAt, ClaimedAt: x.Claim.ClaimedAt, Callable: x.Plan.CallableOf(step),
		LastAttempt: x.Plan.LastAttempt(x.Progress, put)})
	if w.next[at] == nil { // if the namespace is paused, Resume sends the signal
		w.topics.addLane(x.Plan.Template.Namespace, laneKey{x.Plan.CallableOf(step), lane})
	}
}

// queue adds a statement for each kind present. answers receives the rows.
func (w *settling) queue(b *pgx.Batch, answers []Settled) {
	if len(w.ended) > 0 && len(w.moved) > 0 {
		// Each of the statements locks in the order of keys; both together
		// do only if all are locked before.
		tasks := make(pg.UUIDs, 0, len(w.ended)+len(w.moved))
		for i := range w.ended {
			tasks = append(tasks, w.ended[i].TaskUUID)
		}
		for i := range w.moved {
			tasks = append(tasks, w.moved[i].TaskUUID)
		}
		lockSettled.With(pg.Args{"tasks": tasks}).Queue(b)
	}
	if len(w.ended) > 0 {
		type row struct {
			Token           int64
			Watched         bool
			At, RequestedAt time.Time
		}
		settleEnds.With(pg.Args{"o": w.ended}).Queue(b).Query(stmt.Rows(func(r *row) {
			i := w.place[r.Token]
			answers[i] = Settled{Accepted: true, Watched: r.Watched}
			w.list[i].settled(&w.counted, r.At, &r.RequestedAt)
		}))
	}
	if len(w.moved) > 0 {
		move := settleMoves.With(pg.Args{"o": w.moved, "worker": w.taker.Worker, "lease_ms": w.taker.Lease.Milliseconds()})
		move.Queue(b).Query(stmt.Rows(func(r *movedRow) {
			i := w.place[r.Token]
			answers[i] = Settled{Accepted: true}
			w.list[i].settled(&w.counted, r.At, nil)
			if w.next[i] == nil || r.Fence == nil || r.TakenAt == nil {
				return // not claimed: not wanted, or its namespace is paused
			}
			next := *w.next[i]
			next.Token, next.EnqueuedAt, next.ClaimedAt = *r.Fence, r.Since, *r.TakenAt
			answers[i].Next, answers[i].Lease = &next, r.Lease
		}))
	}
}

// movedRow is a row of settleMoves.
type movedRow struct {
	Token   int64
	Fence   *int64 // of the next claim; nil: none
	Since   time.Time
	TakenAt *time.Time
	At      time.Time     // of the move
	Lease   time.Duration `sql:",seconds"`
}

// stillHeld is the fence: the claim holds, and the task is in the state in which it was
// claimed. A task with a dead letter is left to the apply, as is one with dependents, and
// a step with checkpoints, which a settlement does not record.
const stillHeld = `t.task_uuid = any (array[o.task_uuid]) and t.slot = o.slot and t.step_no = o.step_no and t.lease_until is not null and t.token = o.token
      and t.task_state = o.from_state and t.progress = o.before and t.dead_letter is null and t.awaited is null and t.checkpoint is null`

// lockSettled locks rows of tasks in the order in which all do.
// Index: the primary key.
var lockSettled = pg.Compile(`
select from tasker.board where task_uuid = any (@tasks::uuid[]) and slot = 0 order by task_uuid for update`)

// Both kinds begin with the ended claims, each with the time of the change, in a hidden
// list as in reportSteps.

// settleEnds removes tasks whose last step has succeeded from the board, with the attempt
// and the end of the task in one row of the ledger.
// Index: the primary key.
var settleEnds = pg.Compile(`
with o as materialized (
    select *, 0::smallint as slot, clock_timestamp() as at
    from ` + stmt.HiddenList[settledClaim]("o") + `
), gone as (
    delete from tasker.board t using o where ` + stillHeld + `
    returning t.task_uuid, t.step_no, t.attempt, t.token, t.worker, t.enqueued_at, t.claimed_at, t.watched, t.queue, t.task_state, t.requested_at, o.result, o.progress, o.at
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, result, task_state, task_progress)
    select task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, at, at,
           {success}, result::jsonb, {task_complete}, progress
    from gone where ` + recording(`task_uuid, queue, step_no, attempt, {success}, greatest(task_state, {task_in_process}), {task_complete}`) + `
)
select token, coalesce(watched, false) as watched, at, requested_at from gone`)

// settleMoves records attempts and moves the rows of their tasks to the next step, which
// is claimable, or claimed at once (taken) if that is wanted and the namespace is not
// paused. A claim does not change while it is held, so attempt and times come with it and
// the old row need not be read again. What an action may change meanwhile is compared: the priority,
// from which the lane of the next step is. If more than half of the lease is left it is kept:
// then no indexed column changes.
// Index: the primary keys.
var settleMoves = pg.Compile(`
with o as materialized (
    select *, 0::smallint as slot, clock_timestamp() as at, wanted and callable <> all (` + pausedCallables + `) as taken
    from ` + stmt.HiddenList[settledMove]("o") + `
), moved as (
    update tasker.board t
    set progress = o.progress, processor = @worker::uuid, deadline = null, updated_at = o.at,
        state_since = case when t.task_state = o.task_state then t.state_since else o.at end, task_state = o.task_state,
        parents = case when o.heir and not o.taken and octet_length(o.result) <= ` + maxInlineResult + ` then null else o.parents::smallint[] end,
        inputs = case when o.heir and not o.taken and octet_length(o.result) <= ` + maxInlineResult + `
                      then jsonb_build_object(o.step_no::text, o.result::jsonb) end,
        step_no = o.next_no, callable = o.callable, lane = o.lane, tags = string_to_array(o.tags, {separator}),
        state = case when o.taken then {in_progress} else {claimable} end,
        seq = case when o.taken then t.seq else nextval('tasker.step_seq') end,
        attempt = case when o.taken then 1 else 0 end, last_attempt = nullif(o.last_attempt, false), ahead = null, limit_line = null, losses = null, lost_after_ms = null,
        token = case when o.taken then nextval('tasker.claim_token') end,
        worker = case when o.taken then @worker::uuid end,
        lease_until = case when not o.taken then null
                           when t.lease_until > o.at + @lease_ms::bigint * interval '0.5 ms' then t.lease_until
                           else o.at + @lease_ms::bigint * interval '1 ms' end,
        enqueued_at = o.at, claimed_at = case when o.taken then o.at end
    from o where ` + stillHeld + ` and t.priority = o.priority
    returning t.task_uuid, t.token as fence, t.enqueued_at as since, t.claimed_at as taken_at, t.lease_until,
              o.step_no, o.token, o.result, o.attempt, o.enqueued_at, o.claimed_at, o.at, t.queue
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, result)
    select task_uuid, step_no, attempt, token, @worker::uuid, enqueued_at, claimed_at, at, at, {success}, result::jsonb
    from moved where ` + recording(`task_uuid, queue, step_no, attempt, {success}, null, null`) + `
)
select token, fence, since, taken_at, at, extract(epoch from lease_until - clock_timestamp())::float8 as lease from moved`)

// claimCreated claims the first steps of tasks that the same transaction has
// created.
// Index: the primary key.
var claimCreated = pg.Compile(`
update tasker.board
set state = {in_progress}, attempt = 1, token = nextval('tasker.claim_token'), worker = @worker::uuid,
    claimed_at = clock_timestamp(), lease_until = clock_timestamp() + @lease_ms::bigint * interval '1 ms'
where task_uuid = any ((select @tasks::uuid[])::uuid[]) and slot = 0 and step_no is not null and due_at is null
      and callable <> all (` + pausedCallables + `)
returning task_uuid, token, enqueued_at, claimed_at, requested_at`)

// CreateAndClaim is CreateTasks that also claims the first steps for taker, up to its
// Limit, if a task begins with a step that the taker may run. Contexts are as sent, not
// yet in the database's form.
func (s *Board) CreateAndClaim(ctx context.Context, tasks []NewTask, taker ClaimRequest) (answers []CreatedTask, claimed []Claimed, err error) {
	answers = make([]CreatedTask, len(tasks))
	chosen := DistinctIdentities(tasks)
	first := firstSteps(tasks, chosen, &taker)
	ids := make(pg.UUIDs, 0, len(first))
	for id := range first {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) })
	err = s.db.Call(ctx, "create", "create tasks", func(ctx context.Context, db *pg.Conn) error {
		claimed = nil // of a rolled-back try
		accepted, err := s.insertTasks(ctx, db, createTasks, tasks, chosen, identityPatience, func(b *pgx.Batch) {
			if len(ids) == 0 {
				return
			}
			type row struct {
				TaskUUID                           uuid.UUID
				Token                              int64
				EnqueuedAt, ClaimedAt, RequestedAt time.Time
			}
			claim := claimCreated.With(pg.Args{"tasks": ids, "worker": taker.Worker, "lease_ms": taker.Lease.Milliseconds()})
			claim.Queue(b).Query(stmt.Rows(func(r *row) {
				f := first[r.TaskUUID]
				f.Token, f.EnqueuedAt, f.ClaimedAt, f.RequestedAt = r.Token, r.EnqueuedAt, r.ClaimedAt, r.RequestedAt
				claimed = append(claimed, f)
			}))
		})
		if err != nil {
			claimed = nil             // the answers were not committed
			if !pg.LockTimeout(err) { // of an identity, or of a quota during a count
				return err
			}
			if accepted, err = s.insertAround(ctx, db, createTasks, tasks, chosen, identityGlance); err != nil {
				return err
			}
		}
		if err := s.insertLeft(ctx, db, tasks, chosen, accepted); err != nil {
			return err
		}
		return s.answerCreated(ctx, db, tasks, accepted, answers)
	})
	return answers, claimed, err
}

// firstSteps are the claims of new tasks' only first steps that the taker may claim;
// token and times are unset.
func firstSteps(tasks []NewTask, chosen []bool, taker *ClaimRequest) map[uuid.UUID]Claimed {
	first := make(map[uuid.UUID]Claimed, min(len(tasks), taker.Limit))
	for i := range tasks {
		t := &tasks[i]
		if len(first) >= taker.Limit {
			break
		}
		if !chosen[i] || t.startsLater() || len(t.DependsOn) > 0 {
			continue
		}
		no, only := t.onlyStep()
		if !only || !taker.runs(t.Plan, &t.Plan.Steps[no]) {
			continue
		}
		first[t.UUID] = Claimed{
			Task: &Standing{State: workflow.TaskPending, Progress: t.Start().Progress}, TaskUUID: t.UUID, Step: no, Attempt: 1, PlanID: t.Plan.ID, Queue: t.Plan.Queue, Context: t.Context,
			CorrelationID: t.CorrelationID, ParentCorrelationID: t.ParentCorrelationID, Priority: t.Priority, MaxAttempts: t.Retry.Attempts(), Trace: t.Trace,
		}
	}
	return first
}
