package inproc_test

import (
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/signal/contract"
	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	contract.Run(t, func(*testing.T) contract.Setup {
		bus := inproc.New()
		return contract.Setup{Source: bus, Transport: bus}
	})
}

func TestPublishReachesConnectionsWithoutSender(t *testing.T) {
	bus := inproc.New()
	c, err := bus.Connect(t.Context(), []signal.Topic{signal.TopicControl})
	if err != nil {
		t.Fatal(err)
	}
	bus.Publish(
		signal.Signal{Topic: signal.TopicControl, Payload: "malformed \x00"},
		signal.Signal{Topic: signal.TopicControl, Payload: "good"})
	got, err := c.Receive(t.Context())
	if err != nil || got.Payload != "good" {
		t.Fatalf("Receive = %+v, %v", got, err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	bus.Publish(signal.Signal{Topic: signal.TopicControl}) // no subscriber
}

func TestFullBusCollapses(t *testing.T) {
	bus := inproc.New()
	c, err := bus.Connect(t.Context(), []signal.Topic{signal.TopicControl})
	if err != nil {
		t.Fatal(err)
	}
	for n := range pending.DefaultLimit + 1 {
		bus.Publish(signal.Signal{Topic: signal.TopicControl, Payload: strconv.Itoa(n)})
	}
	got, err := c.Receive(t.Context())
	if err != nil || got != (signal.Signal{Topic: signal.TopicControl}) {
		t.Fatalf("Receive = %+v, %v, want the bare topic", got, err)
	}
}
