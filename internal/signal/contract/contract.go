// Package contract is the test suite that every signal source passes: it checks the
// promises of signal.Source, signal.Connection and signal.Transport from outside. Only
// tests import it.
//
// A source must not hide failures of a broker or the network from its listener: signals that
// are lost, duplicated, reordered or late, a broker that is slow, down, wiped, full, and back.
// test/chaos/internal/rig tests that with real brokers behind a faulty proxy, and
// docs/inside/development.md lists which test shows what.
package contract

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tasker-go/tasker/signal"
)

// Setup is a source under test with its transport.
type Setup struct {
	Source    signal.Source
	Transport signal.Transport
	// Kill ends the source's connections on the server; nil for a source without a
	// server.
	Kill func(t *testing.T)
	// OneReader says that only one connection can be open at a time.
	OneReader bool
}

// patience bounds every wait.
const patience = 20 * time.Second

// Run runs the suite. setup is called once per test and returns a source whose signals
// no other test receives.
func Run(t *testing.T, setup func(t *testing.T) Setup) {
	for name, test := range map[string]func(*testing.T, Setup){
		"Receive":                    testReceive,
		"FanOut":                     testFanOut,
		"ConnectContext":             testConnectContext,
		"Malformed":                  testMalformed,
		"Subscribe":                  testSubscribe,
		"SubscribeKeepsWithoutGap":   testSubscribeWithoutGap,
		"Probe":                      testProbe,
		"CancelledReceive":           testCancelledReceive,
		"CancelledReceiveLosesNone":  testCancelledReceiveLosesNone,
		"Close":                      testClose,
		"CloseEndsReceive":           testCloseEndsReceive,
		"Killed":                     testKilled,
		"BurstThroughSender":         testBurst,
		"FloodCollapsesToItsTopics":  testFlood,
		"SameSignalTwiceInOneBatch":  testSameTwice,
		"LongestTopicAndPayload":     testLongest,
		"TopicThatNeedsQuoting":      testQuoting,
		"TopicsGivenTwiceAreTheSame": testTopicsTwice,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, setup(t))
		})
	}
}

func testReceive(t *testing.T, s Setup) {
	a, b := signal.WorkerTopic("a"), signal.WorkerTopic("b")
	c := connect(t, s, a, b)
	send(t, s,
		signal.Signal{Topic: signal.WorkerTopic("not mine"), Payload: "x"},
		signal.Signal{Topic: a},
		signal.Signal{Topic: b, Payload: "some payload, ünïcode"})
	expect(t, c, signal.Signal{Topic: a})
	expect(t, c, signal.Signal{Topic: b, Payload: "some payload, ünïcode"})
	send(t, s, signal.Signal{Topic: a, Payload: "later"})
	expect(t, c, signal.Signal{Topic: a, Payload: "later"})
}

func testFanOut(t *testing.T, s Setup) {
	if s.OneReader {
		t.Skip("the source has one reader at a time")
	}
	x, y := connect(t, s, signal.TopicControl), connect(t, s, signal.TopicControl)
	send(t, s, signal.Signal{Topic: signal.TopicControl, Payload: "to all"})
	expect(t, x, signal.Signal{Topic: signal.TopicControl, Payload: "to all"})
	expect(t, y, signal.Signal{Topic: signal.TopicControl, Payload: "to all"})
}

func testConnectContext(t *testing.T, s Setup) {
	ctx, cancel := context.WithCancel(deadline(t))
	c, err := s.Source.Connect(ctx, []signal.Topic{signal.TopicControl})
	cancel() // bounds the connecting only
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() { closeNow(t, c) })
	send(t, s, signal.Signal{Topic: signal.TopicControl})
	expect(t, c, signal.Signal{Topic: signal.TopicControl})

	if c, err := s.Source.Connect(ctx, nil); err == nil {
		closeNow(t, c)
		t.Fatal("Connect with a context that has ended succeeded")
	}
}

func testMalformed(t *testing.T, s Setup) {
	c := connect(t, s, signal.TopicControl)
	for _, topic := range []signal.Topic{"", "zero\x00byte", "not utf-8 \xff", signal.Topic(strings.Repeat("x", signal.MaxTopicBytes+1))} {
		if c, err := s.Source.Connect(deadline(t), []signal.Topic{topic}); !errors.Is(err, signal.ErrMalformed) {
			if err == nil {
				closeNow(t, c)
			}
			t.Errorf("Connect(%q) = %v, want ErrMalformed", topic, err)
		}
		if err := c.Subscribe(deadline(t), []signal.Topic{topic}); !errors.Is(err, signal.ErrMalformed) {
			t.Errorf("Subscribe(%q) = %v, want ErrMalformed", topic, err)
		}
		if err := s.Transport.Send(deadline(t), []signal.Signal{{Topic: topic}}); !errors.Is(err, signal.ErrMalformed) {
			t.Errorf("Send(%q) = %v, want ErrMalformed", topic, err)
		}
	}
	for _, payload := range []string{"\x00", "\xff", strings.Repeat("x", signal.MaxPayloadBytes+1)} {
		batch := []signal.Signal{{Topic: signal.TopicControl, Payload: payload}}
		if err := s.Transport.Send(deadline(t), batch); !errors.Is(err, signal.ErrMalformed) {
			t.Errorf("Send(payload %.10q) = %v, want ErrMalformed", payload, err)
		}
	}
	if err := s.Transport.Send(deadline(t), nil); err != nil {
		t.Errorf("Send(nothing) = %v", err)
	}
	send(t, s, signal.Signal{Topic: signal.TopicControl, Payload: "still alive"})
	expect(t, c, signal.Signal{Topic: signal.TopicControl, Payload: "still alive"})
}

func testSubscribe(t *testing.T, s Setup) {
	a, b, d := signal.WorkerTopic("a"), signal.WorkerTopic("b"), signal.WorkerTopic("d")
	c := connect(t, s, a, b)
	got := make(chan error, 1)
	go func() { // Receive waits while Subscribe is called
		sig, err := c.Receive(deadline(t))
		if err == nil && sig != (signal.Signal{Topic: d}) {
			err = fmt.Errorf("received %+v", sig)
		}
		got <- err
	}()
	subscribe(t, c, b, d)
	send(t, s, signal.Signal{Topic: a}, signal.Signal{Topic: d})
	if err := <-got; err != nil {
		t.Fatalf("after Subscribe: %v", err)
	}
	send(t, s, signal.Signal{Topic: a}, signal.Signal{Topic: b})
	expect(t, c, signal.Signal{Topic: b})

	subscribe(t, c) // no topics
	send(t, s, signal.Signal{Topic: b}, signal.Signal{Topic: d})
	subscribe(t, c, a)
	send(t, s, signal.Signal{Topic: a})
	expect(t, c, signal.Signal{Topic: a})
}

func testSubscribeWithoutGap(t *testing.T, s Setup) {
	const n = 300
	kept := signal.WorkerTopic("kept")
	c := connect(t, s, kept)
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if err := s.Transport.Send(deadline(t), numbered(kept, i, i+1)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i, more := 0, true; more; i++ {
		subscribe(t, c, kept, signal.WorkerTopic(fmt.Sprint("other", i%7)))
		select {
		case err := <-sent:
			if err != nil {
				t.Fatalf("Send: %v", err)
			}
			more = false
		default:
		}
	}
	expectNumbers(t, c.Receive, n)
}

func testProbe(t *testing.T, s Setup) {
	probe := signal.Signal{Topic: signal.ProbeTopic("me"), Payload: "nonce 1"}
	c := connect(t, s, signal.TopicControl, probe.Topic)
	got := make(chan error, 1)
	go func() {
		sig, err := c.Receive(deadline(t))
		if err == nil && sig != probe {
			err = fmt.Errorf("received %+v", sig)
		}
		got <- err
	}()
	if err := c.Probe(deadline(t), probe); err != nil {
		t.Fatalf("Probe: %v", err)
	}
	if err := <-got; err != nil {
		t.Fatalf("waiting for the probe: %v", err)
	}
}

func testSameTwice(t *testing.T, s Setup) {
	c := connect(t, s, signal.TopicControl)
	same := signal.Signal{Topic: signal.TopicControl, Payload: "same"}
	last := signal.Signal{Topic: signal.TopicControl, Payload: "last"}
	send(t, s, same, same, last)
	expect(t, c, same)
	for { // duplicates are allowed, other signals are not
		sig := receive(t, c)
		if sig == last {
			return
		}
		if sig != same {
			t.Fatalf("received %+v", sig)
		}
	}
}

func testLongest(t *testing.T, s Setup) {
	longest := signal.Signal{
		Topic:   signal.Topic(strings.Repeat("t", signal.MaxTopicBytes)),
		Payload: strings.Repeat("p", signal.MaxPayloadBytes),
	}
	c := connect(t, s, longest.Topic)
	send(t, s, longest)
	expect(t, c, longest)
}

func testQuoting(t *testing.T, s Setup) {
	odd := signal.Signal{Topic: `Worker "x"; drop 'y' \ ünï`, Payload: `'); select 1; -- "`}
	c := connect(t, s, odd.Topic)
	send(t, s, signal.Signal{Topic: `worker "x"; drop 'y' \ ünï`}, odd) // case matters
	expect(t, c, odd)
}

func testTopicsTwice(t *testing.T, s Setup) {
	a, b := signal.WorkerTopic("a"), signal.WorkerTopic("b")
	c := connect(t, s, a, a)
	subscribe(t, c, b, b, a)
	subscribe(t, c, b, b)
	send(t, s, signal.Signal{Topic: a}, signal.Signal{Topic: b})
	expect(t, c, signal.Signal{Topic: b})
}
