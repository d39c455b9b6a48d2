package contract

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/signal"
)

// testBurst publishes 10,000 signals through a Sender: half of them are the same few,
// half have different identifiers.
func testBurst(t *testing.T, s Setup) {
	const n, namespaces = 5000, 20
	topics := []signal.Topic{signal.TopicTasks}
	for i := range namespaces {
		topics = append(topics, signal.WorkerTopic(fmt.Sprint("ns", i)))
	}
	c := connect(t, s, topics...)
	sender := pending.NewSender(s.Transport, pending.SenderConfig{OnError: func(err error) { t.Errorf("flush: %v", err) }})
	if err := sender.Start(t.Context()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	missing := make(map[string]struct{}, n+namespaces)
	for i := range n {
		id := fmt.Sprintf("00000000-0000-7000-8000-%012d", i)
		queue := signal.WorkerTopic(fmt.Sprint("ns", i%namespaces))
		missing[id], missing[string(queue)] = struct{}{}, struct{}{}
		sender.Publish(signal.Signal{Topic: signal.TopicTasks, Payload: id}, signal.Signal{Topic: queue})
	}
	if err := sender.Stop(deadline(t)); err != nil {
		t.Fatalf("Stop: %v", err)
	}
	for len(missing) > 0 {
		sig := receive(t, c)
		if sig.Topic == signal.TopicTasks {
			for id := range strings.SplitSeq(sig.Payload, ",") {
				delete(missing, id)
			}
		} else {
			delete(missing, string(sig.Topic))
		}
	}
	st := sender.Stats()
	if st.Published != 2*n || st.Dropped != 0 || st.Failed != 0 || st.Sent+st.Coalesced != 2*n {
		t.Errorf("statistics do not add up: %+v", st)
	}
	if st.Sent > n {
		t.Errorf("%d signals sent for %d published: nothing coalesced", st.Sent, st.Published)
	}
}

// testFlood sends more different signals than a connection buffers, without a Receive.
// Only the topics are left.
func testFlood(t *testing.T, s Setup) {
	const n = pending.DefaultLimit + 1000
	flood, calm := signal.WorkerTopic("flood"), signal.WorkerTopic("calm")
	probe := signal.Signal{Topic: signal.ProbeTopic("me"), Payload: "nonce"}
	c := connect(t, s, flood, calm, probe.Topic)
	send(t, s, append(numbered(flood, 0, n), signal.Signal{Topic: calm, Payload: "x"}, probe)...)
	missing := make(map[signal.Signal]struct{}, n)
	for _, sig := range numbered(flood, 0, n) {
		missing[sig] = struct{}{}
	}
	calmCame := false
	for sig := receive(t, c); sig != probe; sig = receive(t, c) {
		switch sig {
		case signal.Signal{Topic: flood}: // covers all that are missing
			clear(missing)
		case signal.Signal{Topic: calm}, signal.Signal{Topic: calm, Payload: "x"}:
			calmCame = true
		default:
			delete(missing, sig)
		}
	}
	if len(missing) > 0 || !calmCame {
		t.Errorf("%d signals lost; calm topic received: %v", len(missing), calmCame)
	}
}

// numbered returns the signals from..to-1 on topic, each with its number.
func numbered(topic signal.Topic, from, to int) []signal.Signal {
	batch := make([]signal.Signal, 0, to-from)
	for i := from; i < to; i++ {
		batch = append(batch, signal.Signal{Topic: topic, Payload: fmt.Sprint(i)})
	}
	return batch
}

// expectNumbers receives until all of 0..n-1 have come.
func expectNumbers(t *testing.T, receive func(context.Context) (signal.Signal, error), n int) {
	t.Helper()
	missing := make(map[string]struct{}, n)
	for i := range n {
		missing[fmt.Sprint(i)] = struct{}{}
	}
	ctx := deadline(t)
	for len(missing) > 0 {
		sig, err := receive(ctx)
		if err != nil {
			t.Fatalf("Receive with %d of %d missing: %v", len(missing), n, err)
		}
		delete(missing, sig.Payload)
	}
}

// deadline returns the test's context, bounded.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, s Setup, topics ...signal.Topic) signal.Connection {
	t.Helper()
	c, err := s.Source.Connect(deadline(t), topics)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() { closeNow(t, c) })
	return c
}

// reconnect retries connect within patience.
func reconnect(t *testing.T, s Setup, topics ...signal.Topic) signal.Connection {
	t.Helper()
	ctx := deadline(t)
	for {
		c, err := s.Source.Connect(ctx, topics)
		if err == nil {
			t.Cleanup(func() { closeNow(t, c) })
			return c
		}
		select {
		case <-ctx.Done():
			t.Fatalf("Connect: %v", err)
		case <-time.After(20 * time.Millisecond): // takes time: between two attempts
		}
	}
}

// closeNow closes c; it may be called in cleanups and other goroutines.
func closeNow(t *testing.T, c signal.Connection) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func subscribe(t *testing.T, c signal.Connection, topics ...signal.Topic) {
	t.Helper()
	if err := c.Subscribe(deadline(t), topics); err != nil {
		t.Fatalf("Subscribe: %v", err)
	}
}

func send(t *testing.T, s Setup, batch ...signal.Signal) {
	t.Helper()
	if err := s.Transport.Send(deadline(t), batch); err != nil {
		t.Fatalf("Send: %v", err)
	}
}

func receive(t *testing.T, c signal.Connection) signal.Signal {
	t.Helper()
	sig, err := c.Receive(deadline(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return sig
}

func expect(t *testing.T, c signal.Connection, want signal.Signal) {
	t.Helper()
	if got := receive(t, c); got != want {
		t.Fatalf("received %.80q, want %.80q", got, want)
	}
}
