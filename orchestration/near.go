package orchestration

import (
	"context"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/store"
)

// Taker is a worker in the same process that takes the first steps of new tasks
// as they are created. *worker.Worker is one.
type Taker interface {
	// Offer says what the worker would claim now, for up to want steps; a Limit
	// of 0 is nothing. take must be called once with what was claimed for it,
	// also when that is nothing; lost says that there may be claims among which are not.
	Offer(want int) (req store.ClaimRequest, take func(claimed []store.Claimed, lost bool))
}

// ServeFirst lets a worker of the same process take the first steps of the
// tasks created here. It is to be called before the first of them.
func (o *Orchestrator) ServeFirst(t Taker) { o.taker = t }

// create writes tasks and sends their signals. The first steps go to the taker
// as far as it has offered; nobody else needs to be told of those.
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
