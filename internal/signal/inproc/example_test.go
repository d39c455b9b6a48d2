package inproc_test

import (
	"context"
	"fmt"

	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/signal"
)

// A connection receives the signals of the topics it has subscribed to, and no others.
func Example() {
	ctx := context.Background()
	bus := inproc.New()
	c, err := bus.Connect(ctx, []signal.Topic{signal.TopicDue})
	if err != nil {
		fmt.Println(err)
		return
	}
	bus.Publish(signal.Signal{Topic: signal.TopicTasks}, signal.Signal{Topic: signal.TopicDue})
	s, err := c.Receive(ctx)
	fmt.Println(s.Topic, err, c.Close(ctx))
	// Output: tasker_due <nil> <nil>
}
