package wal_test

import (
	"fmt"

	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
)

// Transports that carry bytes get a topic and a payload with a zero byte between them.
func ExampleEncode() {
	raw, err := wal.Encode(signal.Signal{Topic: signal.WorkerTopic("shop"), Payload: "17.200"})
	fmt.Printf("%q %v\n", raw, err)
	back, err := wal.Decode(raw)
	fmt.Println(back.Topic, back.Payload, err)
	_, err = wal.Decode([]byte("no topic"))
	fmt.Println(err)
	// Output:
	// "tasker_worker_shop\x0017.200" <nil>
	// tasker_worker_shop 17.200 <nil>
	// malformed signal: no separator in 8 bytes
}
