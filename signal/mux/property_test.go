package mux_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/mux"
)

// world publishes consecutive numbers on a few topics.
type world struct {
	source *fake
	shared *mux.Source
	topics []signal.Topic

	mu   sync.Mutex
	last map[signal.Topic]int // the number published last
}

func (w *world) publish(topic signal.Topic) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[topic]++
	w.source.publish(signal.Signal{Topic: topic, Payload: strconv.Itoa(w.last[topic])})
}

func (w *world) published(topics []signal.Topic) map[signal.Topic]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	numbers := make(map[signal.Topic]int)
	for _, t := range topics {
		numbers[t] = w.last[t]
	}
	return numbers
}

// visit is one subscription of one member.
type visit struct {
	topics []signal.Topic
	cut    bool // Subscribe is cancelled at once, with any outcome
	probe  bool
	leave  bool // closes afterwards
	wait   int  // numbers published meanwhile
}

// member makes its visits. After each Connect or Subscribe it must receive each number
// published from then on, or an error.
func (w *world) member(name string, visits []visit) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var c signal.Connection
	for i, v := range visits {
		var err error
		probe := signal.Signal{Topic: signal.ProbeTopic(name), Payload: fmt.Sprint(name, i)}
		topics := append(slices.Clone(v.topics), probe.Topic)
		if c == nil {
			c, err = w.shared.Connect(ctx, topics)
			if err != nil && ctx.Err() == nil { // broken a moment later
				c = nil
				continue
			}
		} else {
			if v.cut {
				gone, cancel := context.WithCancel(ctx)
				cancel()
				_ = c.Subscribe(gone, w.topics)
			}
			err = c.Subscribe(ctx, topics)
		}
		if err == nil {
			err = w.receive(ctx, c, v, probe)
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errMissed):
			return fmt.Errorf("%s: %w", name, err)
		case err != nil, v.leave, i == len(visits)-1:
			if err := c.Close(ctx); err != nil {
				return fmt.Errorf("%s: Close: %w", name, err)
			}
			if _, err := c.Receive(ctx); !errors.Is(err, signal.ErrClosed) {
				return fmt.Errorf("%s: Receive after Close: %w", name, err)
			}
			c = nil
		}
	}
	return nil
}

var errMissed = errors.New("missed")

func (w *world) receive(ctx context.Context, c signal.Connection, v visit, probe signal.Signal) error {
	next := w.published(v.topics) // signals from here on must be received
	if v.probe {
		if err := c.Probe(ctx, probe); err != nil {
			return err
		}
	}
	for range v.wait {
		for _, t := range w.topics {
			w.publish(t)
		}
	}
	until, probed := w.published(v.topics), !v.probe
	for {
		behind := slices.ContainsFunc(v.topics, func(t signal.Topic) bool { return next[t] < until[t] })
		if !behind && probed {
			return nil
		}
		s, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		if s == probe {
			probed = true
		}
		n, err := strconv.Atoi(s.Payload)
		if err != nil || n <= next[s.Topic] || !slices.Contains(v.topics, s.Topic) {
			continue // from before
		}
		if n != next[s.Topic]+1 {
			return fmt.Errorf("%w: %s %d came after %d", errMissed, s.Topic, n, next[s.Topic])
		}
		next[s.Topic] = n
	}
}

// TestNothingIsMissed: every member receives each signal of its topics that is sent
// after Connect or Subscribe has returned, or an error, whatever the others and the
// connection do meanwhile; and no connection is left in the end.
func TestNothingIsMissed(t *testing.T) {
	topics := []signal.Topic{topicA, topicB, topicC}
	visits := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) visit {
		return visit{
			topics: rapid.SliceOfDistinct(rapid.SampledFrom(topics), rapid.ID).Draw(t, "topics"),
			cut:    rapid.Bool().Draw(t, "cut"),
			probe:  rapid.Bool().Draw(t, "probe"),
			leave:  rapid.Bool().Draw(t, "leave"),
			wait:   rapid.IntRange(0, 5).Draw(t, "wait"),
		}
	}), 1, 6)
	rapid.Check(t, func(t *rapid.T) {
		f := &fake{}
		w := &world{source: f, shared: mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit, ProofShare: 0.9}), topics: topics, last: make(map[signal.Topic]int)}
		breaks := rapid.IntRange(0, 3).Draw(t, "breaks")
		members := rapid.SliceOfN(visits, 1, 4).Draw(t, "members")
		var wg sync.WaitGroup
		failed := make(chan error, len(members))
		for i, v := range members {
			wg.Go(func() {
				if err := w.member(fmt.Sprint("member ", i), v); err != nil {
					failed <- err
				}
			})
		}
		for range breaks {
			w.publish(topicA)
			f.breakAll()
		}
		wg.Wait()
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
		if open, _, left := f.state(); open != 0 {
			t.Fatalf("%d connections are left, subscribed to %v", open, left)
		}
	})
}
