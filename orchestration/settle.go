package orchestration

import (
	"context"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
	"github.com/tasker-go/tasker/workflow"
)

// Settle applies successes of a worker in the same process without the detour
// over the board: it decides by the same rules as after a report, and records
// the attempts, what follows, and the claims of the next steps for taker, all
// in one round trip. Of each settlement the worker's part must be filled in;
// the rest is decided here. The answer has one entry per settlement, in order;
// what is not accepted has to be reported as usual, also after an error. It is
// safe for concurrent use. See store.Settle.
func (o *Orchestrator) Settle(ctx context.Context, taker store.ClaimRequest, list []store.Settlement) ([]store.Settled, error) {
	for i := range list {
		o.conclude(ctx, &list[i])
	}
	answers, done, err := o.store.Settle(ctx, o.cfg.Daemon.UUID, taker, list)
	if err != nil {
		return nil, err
	}
	o.publish(done.Signals)
	o.settled(list, answers, done)
	return answers, nil
}

// conclude runs the rules over one success. One that contradicts the task's
// records stays undecided: it is found again, and told of, when it is reported.
func (o *Orchestrator) conclude(ctx context.Context, s *store.Settlement) {
	plan, err := o.store.PlanByID(ctx, s.Claim.PlanID)
	if err != nil {
		o.log.Debug("plan not read, the step is reported", zap.Int32("plan", s.Claim.PlanID), zap.Error(err))
		return
	}
	progress, effects, err := workflow.Advance(plan.Plan, s.Task.State, s.Task.Progress, o.cfg.Rules,
		workflow.Reported{Step: s.Claim.Step, Attempt: s.Claim.Attempt, Success: true, RetryAfter: -1, Result: s.Result})
	if err != nil {
		o.log.Debug("not settled, the step is reported", zap.Stringer("task_uuid", s.Claim.TaskUUID), zap.Error(err))
		return
	}
	s.Plan, s.Progress, s.Effects = plan, progress, effects
}

// settled is applied for settlements. That a watched task has ended is known
// only with the answer, so its signal could not travel with the transaction.
func (o *Orchestrator) settled(list []store.Settlement, answers []store.Settled, done store.Committed) {
	changes := make([]store.Change, 0, len(list))
	var ends []signal.Signal
	for i := range answers {
		if !answers[i].Accepted {
			continue
		}
		s, id := &list[i], list[i].Claim.TaskUUID
		task := &store.TakenTask{UUID: id, Plan: s.Plan, State: s.Task.State, Priority: s.Claim.Priority, Inline: true}
		changes = append(changes, store.Change{Task: task, Progress: s.Progress, Effects: s.Effects, Actor: o.cfg.Daemon.ID})
		if answers[i].Watched {
			ends = append(ends, signal.Signal{Topic: signal.TopicTasks, Payload: id.String()})
		}
	}
	if len(ends) > 0 {
		o.cfg.Publisher.Publish(ends...)
	}
	o.applied(changes, done)
}

// Taker is a worker in the same process that takes the first steps of new tasks
// as they are created. *worker.Worker is one.
type Taker interface {
	// Offer says what the worker would claim now, for up to want steps; a Limit
	// of 0 is nothing. take must be called once with what was claimed for it,
	// also when that is nothing.
	Offer(want int) (req store.ClaimRequest, take func(claimed []store.Claimed, standings []*store.Standing))
}

// ServeFirst lets a worker of the same process take the first steps of the
// tasks created here. It is to be called before the first of them.
func (o *Orchestrator) ServeFirst(t Taker) { o.taker = t }

// create writes tasks and sends their signals. The first steps go to the taker
// as far as it has offered; nobody else needs to be told of those.
func (o *Orchestrator) create(ctx context.Context, tasks []store.NewTask) (created []store.CreatedTask, err error) {
	var offer store.ClaimRequest
	take := func([]store.Claimed, []*store.Standing) {}
	if o.taker != nil {
		offer, take = o.taker.Offer(len(tasks))
	}
	var claimed []store.Claimed
	var standings []*store.Standing
	defer func() { take(claimed, standings) }()
	if offer.Limit > 0 {
		created, claimed, standings, err = o.store.CreateAndClaim(ctx, tasks, offer)
	} else {
		created, err = o.store.CreateTasks(ctx, tasks)
	}
	if err == nil && len(claimed) < len(tasks) {
		o.publish(store.CreateSignals(tasks))
	}
	return created, err
}

// Hear takes signals that a daemon of the same process sends, before they have
// been to the database and back. It never blocks. An event system that is to
// poll only does not hear them.
func (o *Orchestrator) Hear(signals ...signal.Signal) {
	for _, s := range signals {
		system := o.apply
		if s.Topic == signal.TopicDue {
			system = o.readiness
		} else if s.Topic != signal.TopicOrchestration {
			continue
		}
		if system.Mode().Listens() {
			system.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
}
