package signal_test

import (
	"fmt"

	"github.com/tasker-go/tasker/signal"
)

// A flood of signals waits as one: what matters is that there is work, not how often that
// was said.
func ExampleBuffer() {
	b := signal.NewBuffer(2)
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

// Transports that carry bytes get a topic and a payload with a zero byte between them.
func ExampleEncode() {
	raw, err := signal.Encode(signal.Signal{Topic: signal.WorkerTopic("shop"), Payload: "17.200"})
	fmt.Printf("%q %v\n", raw, err)
	back, err := signal.Decode(raw)
	fmt.Println(back.Topic, back.Payload, err)
	_, err = signal.Decode([]byte("no topic"))
	fmt.Println(err)
	// Output:
	// "tasker_worker_shop\x0017.200" <nil>
	// tasker_worker_shop 17.200 <nil>
	// malformed signal: no separator in 8 bytes
}
