package settle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Config configures a Settler; all fields are required.
type Config struct {
	Store *store.Store
	// Actor is recorded as the author of decisions in the history of tasks.
	Actor string
	// Publisher sends the signals that the store does not send.
	Publisher signal.Publisher
	Logger    *zap.Logger
	Metrics   *telemetry.Metrics
	Tracer    *tracing.Tracer // nil: no spans
}

// Values of the label way of tasker_steps_settled_total: successes of tasks with one
// live step, and others.
const (
	Lone  = "lone"
	Taken = "taken"
)

// Settler settles the successes of one worker. It is safe for concurrent use.
type Settler struct {
	cfg   Config
	rules agreed
}

// New returns a Settler.
func New(cfg Config) *Settler {
	return &Settler{cfg: cfg}
}

// Success is the success of a claimed step, as it would be reported.
type Success struct {
	Claim  *store.Claimed
	Report store.Report
	Saved  bool // the execution has saved a checkpoint
}

// Result is the outcome of one Settle.
type Result struct {
	// Accepted has one entry per success, in order. A success with false must be
	// reported: the report shows whether the claim still holds.
	Accepted []bool
	// Next are the steps that follow and were claimed for the taker. Their leases
	// last for Lease from the beginning of the call.
	Next  []store.Claimed
	Lease time.Duration
	// Unknown says that the taker may hold claims that are not in Next, because an
	// answer was lost.
	Unknown bool
}

// Settle records successes with their effects and claims for taker, up to its Limit,
// the new steps that it may run; these bypass the steps that wait on the board.
// Successes of the only live step take one round trip, others two, whatever their
// number. It leaves to orchestrators what needs rules that none has published or that
// differ, and what this version does not understand. After an error the result holds
// for what was done before it.
func (settler *Settler) Settle(ctx context.Context, taker store.ClaimRequest, list []Success) (Result, error) {
	s := settler.by(settler.rules.read(settler.cfg.Store.AgreedRules(), settler.cfg.Logger))
	lone, others := s.sort(ctx, list)
	r, more := newResult(len(list), taker), newResult(len(list), taker)
	var errOthers error
	forLone := taker
	forLone.Limit = min(taker.Limit, len(lone))
	taker.Limit -= forLone.Limit
	var both conc.WaitGroup // the round trips run in parallel
	if len(lone) > 0 && len(others) > 0 {
		both.Go(func() { errOthers = s.others(ctx, taker, list, others, &more) })
	} else {
		errOthers = s.others(ctx, taker, list, others, &more)
	}
	missed, errLone := s.lone(ctx, forLone, lone, &r)
	if errLone == nil {
		forLone.Limit -= len(r.Next)
		errLone = s.others(ctx, forLone, list, missed, &r)
	}
	both.Wait()
	r.add(&more)
	return r, errors.Join(errLone, errOthers)
}

// settling is one call of Settle.
type settling struct {
	cfg      *Config
	rules    *Rules // nil: decisions that depend on them are left to orchestrators
	recorder Recorder
}

func (settler *Settler) by(rules *Rules) *settling {
	s := &settling{cfg: &settler.cfg, rules: rules, recorder: Recorder{Metrics: settler.cfg.Metrics, Log: settler.cfg.Logger, Tracer: settler.cfg.Tracer}}
	if rules != nil {
		s.recorder.Decisions = rules.Decisions
	}
	return s
}

func newResult(successes int, taker store.ClaimRequest) Result {
	return Result{Accepted: make([]bool, successes), Lease: taker.Lease}
}

func (r *Result) add(more *Result) {
	for i, accepted := range more.Accepted {
		r.Accepted[i] = r.Accepted[i] || accepted
	}
	r.Next, r.Lease, r.Unknown = append(r.Next, more.Next...), min(r.Lease, more.Lease), r.Unknown || more.Unknown
}

// loneSuccess is a success of the only live step, with its effects.
type loneSuccess struct {
	at         int
	settlement store.Settlement
}

// sort separates successes that one statement can settle from those whose task must be
// taken first; the rest is left to orchestrators.
func (s *settling) sort(ctx context.Context, list []Success) (lone []loneSuccess, others []int) {
	for i := range list {
		claim := list[i].Claim
		plan, err := s.cfg.Store.PlanByID(ctx, claim.PlanID)
		if err != nil {
			s.cfg.Logger.Debug("plan not read, the step is reported", zap.Int32("plan", claim.PlanID), zap.Error(err))
			continue
		}
		if s.rules == nil && (claim.Batch != nil || plan.Steps[claim.Step].Kind.Unfolds()) {
			continue
		}
		if settlement, ok := s.decideLone(plan, &list[i]); ok {
			lone = append(lone, loneSuccess{i, settlement})
		} else {
			others = append(others, i)
		}
	}
	return lone, others
}

func (s *settling) decideLone(plan *store.Plan, success *Success) (settlement store.Settlement, ok bool) {
	claim := success.Claim
	if claim.Task == nil || success.Saved || success.Report.Events != nil || success.Report.Isolated != nil || success.Report.Metadata != nil {
		return settlement, false
	}
	settlement = store.Settlement{Claim: claim, Result: success.Report.Result, Plan: plan}
	in := workflow.Reported{Step: claim.Step, Attempt: claim.Attempt, Success: true, RetryAfter: -1, Result: success.Report.Result}
	var err error
	if settlement.Progress, settlement.Effects, err = s.decide(plan, claim.Task.State, claim.Task.Progress, in); err != nil {
		s.cfg.Logger.Debug("not settled at once", zap.Stringer("task_uuid", claim.TaskUUID), zap.Error(err))
		return settlement, false
	}
	return settlement, settlement.Fits()
}

// errNotOurs: the decision belongs to an orchestrator.
var errNotOurs = errors.New("it is for an orchestrator to decide")

// Advance calls workflow.Advance and returns its panics as errors: contradictory
// records must not end a daemon.
func Advance(plan *store.Plan, state workflow.TaskState, progress *workflow.Progress, rules workflow.Rules, in ...workflow.Input) (next *workflow.Progress, effects *workflow.Effects, err error) {
	err = lifecycle.Guard(func() (err error) {
		next, effects, err = workflow.Advance(plan.Plan, state, progress, rules, in...)
		return err
	})
	return next, effects, err
}

// decide runs the rules over successes. Successes depend only on the rules of
// creation, unless a requested creation is refused.
func (s *settling) decide(plan *store.Plan, state workflow.TaskState, progress *workflow.Progress, in ...workflow.Input) (next *workflow.Progress, effects *workflow.Effects, err error) {
	var rules workflow.Rules
	switch {
	case s.rules != nil:
		rules.Creation = s.rules.Creation
	case len(progress.Groups) > 0: // the limit of concurrent batches is configured
		return nil, nil, errNotOurs
	}
	next, effects, err = Advance(plan, state, progress, rules, in...)
	if err == nil && !succeeds(effects) {
		err = errNotOurs
	}
	return next, effects, err
}

// succeeds reports whether the effects contain no failure.
func succeeds(e *workflow.Effects) bool {
	failed := func(end workflow.EndStep) bool { return end.Outcome != workflow.OutcomeSuccess }
	return len(e.Retry) == 0 && e.DeadLetter == nil && (!e.Finished || e.State == workflow.TaskComplete) && !slices.ContainsFunc(e.End, failed)
}

// lone settles by the rows of the tasks alone. It returns as missed the tasks that are
// not that simple: another task waits for this one, or it has a dead-letter entry.
func (s *settling) lone(ctx context.Context, taker store.ClaimRequest, list []loneSuccess, r *Result) (missed []int, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	settlements := make([]store.Settlement, len(list))
	for i := range list {
		settlements[i] = list[i].settlement
	}
	answers, done, err := s.cfg.Store.Settle(ctx, taker, settlements)
	if err != nil {
		r.Unknown = taker.Limit > 0
		return nil, fmt.Errorf("settle the only steps in hand: %w", err)
	}
	s.publish(done.Signals)
	changes := make([]store.Change, 0, len(list))
	var ends []signal.Signal // which the transaction could not send: it is known with the answer
	for i, a := range answers {
		if !a.Accepted {
			missed = append(missed, list[i].at)
			continue
		}
		r.Accepted[list[i].at] = true
		x := &settlements[i]
		changes = append(changes, store.Change{Task: &store.TakenTask{UUID: x.Claim.TaskUUID, Plan: x.Plan, Trace: x.Claim.Trace}, Progress: x.Progress, Effects: x.Effects})
		if a.Watched {
			ends = append(ends, signal.Signal{Topic: signal.TopicTasks, Payload: x.Claim.TaskUUID.String()})
		}
		if a.Next != nil {
			r.Next, r.Lease = append(r.Next, *a.Next), min(r.Lease, a.Lease)
		}
	}
	if len(ends) > 0 {
		s.cfg.Publisher.Publish(ends...)
	}
	s.cfg.Metrics.StepsSettled.WithLabelValues(Lone).Add(float64(len(changes)))
	s.recorder.Record(changes, done)
	return missed, nil
}

// others reports, takes the tasks and decides, all in one transaction. A task without
// a decision is still reported, and orchestrators are notified.
func (s *settling) others(ctx context.Context, taker store.ClaimRequest, list []Success, which []int, r *Result) error {
	if len(which) == 0 {
		return nil
	}
	reports := make([]store.Report, len(which))
	for i, at := range which {
		reports[i] = list[at].Report
	}
	taken, accepted, err := s.cfg.Store.ReportAndTake(ctx, reports)
	if err != nil {
		return fmt.Errorf("take the tasks of steps that succeeded: %w", err)
	}
	defer taken.Release()
	if len(taken.Tasks) == 0 {
		return nil
	}
	changes := s.decideTaken(taken.Tasks)
	done, err := taken.CommitFor(ctx, taker.Worker, changes, &taker)
	if err != nil {
		r.Unknown = r.Unknown || taker.Limit > 0
		return fmt.Errorf("settle steps that succeeded: %w", err)
	}
	for i, at := range which {
		r.Accepted[at] = accepted[i]
	}
	r.Next, r.Unknown = append(r.Next, done.Claimed...), r.Unknown || done.Unread
	s.publish(done.Signals)
	steps := 0
	for i := range changes {
		steps += len(changes[i].Task.Reported)
	}
	s.cfg.Metrics.StepsSettled.WithLabelValues(Taken).Add(float64(steps))
	s.recorder.Record(changes, done)
	return nil
}

// decideTaken decides about the tasks whose reports are all successes.
func (s *settling) decideTaken(tasks []store.TakenTask) []store.Change {
	changes := make([]store.Change, 0, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if t.Broken != nil || t.Unreadable != nil || len(t.Reported) == 0 {
			continue
		}
		in, ours := s.successes(t)
		if !ours {
			continue
		}
		progress, effects, err := s.decide(t.Plan, t.State, t.Progress, in...)
		if err != nil {
			s.cfg.Logger.Debug("not settled, left to an orchestrator", zap.Stringer("task_uuid", t.UUID), zap.Error(err))
			continue
		}
		changes = append(changes, store.Change{Task: t, Progress: progress, Effects: effects, Actor: s.cfg.Actor})
	}
	return changes
}

// successes converts the reports of a task to inputs; ours is false if one of them is
// no success.
func (s *settling) successes(t *store.TakenTask) (in []workflow.Input, ours bool) {
	in = make([]workflow.Input, len(t.Reported))
	for i := range t.Reported {
		reported := &t.Reported[i]
		step := t.Plan.Step(t.Progress, reported.Step)
		if reported.Outcome != workflow.OutcomeSuccess || step == nil || step.Kind.Unfolds() && (s.rules == nil || reported.Result == nil) {
			return nil, false
		}
		in[i] = workflow.Reported{Step: reported.Step, Attempt: reported.Attempt, Success: true, RetryAfter: -1, Result: reported.Result}
	}
	return in, true
}

func (s *settling) publish(signals []signal.Signal) {
	if !s.cfg.Store.SendsSignals() && len(signals) > 0 {
		s.cfg.Publisher.Publish(signals...)
	}
}
