package worker

import (
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/worker/internal/engine"
)

// eventsOf lists the events of an execution that ended.
func eventsOf(x *engine.Execution) (list []events.Event) {
	s, ok := x.Step.(*step)
	if !ok {
		return nil
	}
	for i := range s.published {
		list = append(list, s.published[i].event)
	}
	return list
}
