package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/workflow"
)

// Settlement is the success of a claimed step in the row of its task, with its effects.
// The worker sets Claim, Plan and Result; its rules set Progress and Effects.
type Settlement struct {
	Claim  *Claimed        // its Task is the state of the task
	Result json.RawMessage // storable JSON

	Plan     *Plan
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
// It accepts only simple cases, of claims of taker's worker: one step in hand, one or
// none next, no change of the task that must be recorded. The fence is the claim's token,
// and the progress must be the one that it came with. A settlement that is not accepted
// must be sent with Report, which determines whether the claim still holds. After an
// error it may have been committed nevertheless; then that report is rejected, and the
// claimed step is claimable after its lease.
//
// The signals in Committed are to be published unless the store sends them itself; the
// signal that a watched task has ended is always left to the caller.
func (s *Store) Settle(ctx context.Context, taker ClaimRequest, list []Settlement) ([]Settled, Committed, error) {
	w := newSettling(taker, list)
	done := Committed{NextDue: -1, Signals: w.topics.signals()}
	answers := make([]Settled, len(list))
	if w.empty() {
		return answers, done, nil
	}
	err := s.call(ctx, "settle", "settle results", func(ctx context.Context, db *conn) error {
		clear(answers) // of a rolled-back try
		return s.transact(ctx, db, done.Signals, func(b *pgx.Batch) { w.queue(b, answers) })
	})
	if err != nil {
		return nil, Committed{NextDue: -1}, err
	}
	for i := range answers {
		if answers[i].Accepted && list[i].Effects.Finished {
			done.Finished++
		}
	}
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
	var events eventColumns
	for _, change := range e.Changes {
		events.add(x.Claim.TaskUUID, change, "")
	}
	switch {
	case len(events.tasks) > 0:
		return false
	case e.Finished:
		return len(e.Put) == 0 && e.State == workflow.TaskComplete
	}
	return len(e.Put) == 1 && e.Put[0].DueIn <= 0 && inlines(x.Plan, x.Progress, e.Put[0].Step) && inHand(x.Progress) == 1
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
	n.Step, n.Attempt, n.ParentResults = step.No, 1, results
	n.Task = &Standing{State: x.Effects.State, Progress: x.Progress}
	return &n
}

// settling holds the parameters of Settle's statements and the places of their rows.
type settling struct {
	taker  *ClaimRequest
	list   []Settlement
	ended  settledColumns
	moved  settledMoves
	next   []*Claimed    // of each settlement
	place  map[int64]int // of each settlement, by the token of its claim
	topics signalSet
}

// settledColumns are the claims that ended, with the fence, and the result and
// the progress to record.
type settledColumns struct {
	tasks      uuids
	steps      []int16
	tokens     []int64
	froms      []int16
	before     [][]byte
	results    []*string
	progresses [][]byte
}

// settledMoves are those whose tasks continue.
type settledMoves struct {
	settledColumns
	states  []int16
	nexts   []int16
	wanted  []bool // claimed for the taker
	heirs   []bool // its only parent is the step that it follows in the row
	lanes   []int16
	parents []string
	tags    []*string
	// of the claims that ended
	attempts []int16
	enqueued []time.Time
	claimed  []time.Time
	lasts    []bool
	// of what follows
	callables []int32
}

func newSettling(taker ClaimRequest, list []Settlement) *settling {
	w := &settling{taker: &taker, list: list, next: make([]*Claimed, len(list)),
		place: make(map[int64]int, len(list)), topics: signalSet{}}
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
	if x.Effects.Finished {
		w.ended.add(x)
		return
	}
	put, m := x.Effects.Put[0].Step, &w.moved
	step, wanted := &x.Plan.Steps[put], w.next[at] != nil
	m.add(x)
	m.states, m.nexts = append(m.states, int16(x.Effects.State)), append(m.nexts, int16(put)) // #nosec G115 -- at most maxInlineSteps
	m.wanted = append(m.wanted, wanted)
	parents := x.Plan.ParentsOf(x.Progress, put)
	m.heirs = append(m.heirs, follows(parents, x.Effects.End[0]))
	m.lanes = append(m.lanes, Lane(x.Claim.Priority, true))
	m.parents, m.tags = append(m.parents, arrayLiteral(parents)), append(m.tags, joined(step.Tags))
	m.attempts = append(m.attempts, int16(x.Claim.Attempt)) // #nosec G115 -- as it came
	m.enqueued, m.claimed = append(m.enqueued, x.Claim.EnqueuedAt), append(m.claimed, x.Claim.ClaimedAt)
	m.callables, m.lasts = append(m.callables, x.Plan.callableOf(step)), append(m.lasts, x.Plan.LastAttempt(x.Progress, put))
	if !wanted { // if the namespace is paused, Resume sends the signal
		w.topics.addLane(x.Plan.Template.Namespace, laneKey{x.Plan.callableOf(step), Lane(x.Claim.Priority, true)})
	}
}

func (c *settledColumns) add(x *Settlement) {
	c.tasks, c.tokens = append(c.tasks, x.Claim.TaskUUID), append(c.tokens, x.Claim.Token)
	c.steps, c.froms = append(c.steps, int16(x.Claim.Step)), append(c.froms, int16(x.Claim.Task.State)) // #nosec G115 -- at most maxInlineSteps
	c.before, c.progresses = append(c.before, x.Claim.Task.Progress.Encode()), append(c.progresses, x.Progress.Encode())
	c.results = append(c.results, jsonText(x.Result))
}

func (c *settledColumns) arguments() []any {
	return []any{c.tasks, c.steps, c.tokens, c.froms, c.before, c.results, c.progresses}
}

// queue adds a statement for each kind present. answers receives the rows.
func (w *settling) queue(b *pgx.Batch, answers []Settled) {
	if len(w.ended.tasks) > 0 && len(w.moved.tasks) > 0 {
		// Each of the statements locks in the order of keys; both together
		// do only if all are locked before.
		b.Queue(lockSettled, slices.Concat(w.ended.tasks, w.moved.tasks))
	}
	if len(w.ended.tasks) > 0 {
		b.Queue(settleEnds, append(w.ended.arguments(), int16(workflow.TaskComplete))...).Query(func(rows pgx.Rows) error {
			var token int64
			var watched bool
			_, err := pgx.ForEachRow(rows, []any{&token, &watched}, func() error {
				answers[w.place[token]] = Settled{Accepted: true, Watched: watched}
				return nil
			})
			return err
		})
	}
	if m := &w.moved; len(m.tasks) > 0 {
		args := append(m.arguments(), m.states, m.nexts, m.wanted, m.heirs, m.lanes, m.parents, m.tags,
			m.attempts, m.enqueued, m.claimed, w.taker.Worker, w.taker.Worker, w.taker.Lease.Milliseconds(), m.callables, m.lasts)
		b.Queue(settleMoves, args...).Query(func(rows pgx.Rows) error {
			var token int64
			var fence *int64
			var since time.Time
			var at *time.Time
			var left *float64
			_, err := pgx.ForEachRow(rows, []any{&token, &fence, &since, &at, &left}, func() error {
				i := w.place[token]
				answers[i] = Settled{Accepted: true}
				if w.next[i] == nil || fence == nil || at == nil || left == nil {
					return nil // not claimed: not wanted, or its namespace is paused
				}
				next := *w.next[i]
				next.Token, next.EnqueuedAt, next.ClaimedAt = *fence, since, *at
				answers[i].Next, answers[i].Lease = &next, seconds(left)
				return nil
			})
			return err
		})
	}
}
