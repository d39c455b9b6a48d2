package orchestration

import (
	"context"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// Taker is a worker in the same process that takes the first steps of new tasks
// as they are created. *worker.Worker is one.
type Taker interface {
	// Offer returns the claim that the worker would make now, for up to want steps;
	// a Limit of 0 is none. take must be called once with the steps claimed for it,
	// even if there are none; lost says that claims may be missing from them.
	Offer(want int) (req store.ClaimRequest, take func(claimed []store.Claimed, lost bool))
}

// ServeFirst gives the first steps of tasks created here to a worker of the same
// process. It must be called before the first task is created.
func (o *Orchestrator) ServeFirst(t Taker) { o.taker = t }

// create writes tasks and sends their signals. The taker gets the first steps within
// its offer; no signal is sent for those.
func (o *Orchestrator) create(ctx context.Context, tasks []store.NewTask) (created []store.CreatedTask, err error) {
	var offer store.ClaimRequest
	take := func([]store.Claimed, bool) {}
	if o.taker != nil {
		offer, take = o.taker.Offer(len(tasks))
	}
	var claimed []store.Claimed
	defer func() { take(claimed, err != nil) }()
	if offer.Limit > 0 {
		created, claimed, err = o.store.CreateAndClaim(ctx, tasks, offer)
	} else {
		created, err = o.store.CreateTasks(ctx, tasks)
	}
	if err == nil {
		var signals []signal.Signal
		if len(claimed) < len(tasks) {
			signals = store.CreateSignals(tasks)
		}
		o.publish(o.store.WithTransitions(signals))
	}
	return created, err
}

// Hear receives signals from a daemon in the same process, without the round trip through
// the database. It never blocks. An event system that only polls ignores them.
func (o *Orchestrator) Hear(signals ...signal.Signal) {
	for _, s := range signals {
		system := o.apply
		switch s.Topic {
		case signal.TopicDue:
			system = o.readiness
		case signal.TopicTasks:
			o.waiters.signalled(s.Payload)
			continue
		case signal.TopicOrchestration:
		default:
			continue
		}
		if system.Mode().Listens() {
			system.Wake(coordinator.ReasonSignal, s.Topic)
		}
	}
}
