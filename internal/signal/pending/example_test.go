package pending_test

import (
	"fmt"

	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/signal"
)

// A flood of signals waits as one: what matters is that there is work, not how often that
// was said.
func ExampleBuffer() {
	b := pending.NewBuffer(2)
	for lane := range 100 {
		b.Put(signal.Signal{Topic: signal.WorkerTopic("shop"), Payload: fmt.Sprint("17.", lane)})
	}
	b.Put(signal.Signal{Topic: signal.TopicDue})
	b.Put(signal.Signal{Topic: signal.TopicDue})
	for _, s := range b.TakeBatch(10) {
		fmt.Printf("%s %q\n", s.Topic, s.Payload)
	}
	// Output:
	// tasker_worker_shop ""
	// tasker_due ""
}
