package pending_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

// TestBufferLosesNoTopic: every signal is taken later unchanged, or covered by a signal
// without payload; the size is bounded; the counters add up; the oldest mark is never
// beyond a signal that was not taken.
func TestBufferLosesNoTopic(t *testing.T) {
	topics := []signal.Topic{signal.TopicTasks, signal.TopicControl, signal.WorkerTopic("a"), signal.ProbeTopic("p")}
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 8).Draw(t, "limit")
		b := pending.NewBuffer(limit)
		owed := map[signal.Signal]uint64{} // put and not yet taken or covered → first mark
		var put, taken uint64
		take := func(n int) {
			for _, s := range b.TakeBatch(n) {
				taken++
				for o := range owed {
					covers := o == s || o.Topic == s.Topic && s.Payload == "" ||
						o.Topic == s.Topic && topicset.IsProbe(s.Topic) // the newest probe covers all
					if covers {
						delete(owed, o)
					}
				}
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if rapid.IntRange(0, 4).Draw(t, "take") == 0 {
				take(rapid.IntRange(1, 4).Draw(t, "n"))
			} else {
				put++
				s := signal.Signal{Topic: rapid.SampledFrom(topics).Draw(t, "topic"), Payload: rapid.SampledFrom([]string{"", "1", "2", "3", "4", "5"}).Draw(t, "payload")}
				if topicset.IsProbe(s.Topic) && s.Payload == "" {
					s.Payload = "nonce"
				}
				b.PutAt(s, put)
				if _, already := owed[s]; !already {
					owed[s] = put
				}
			}
			if b.Len() > limit+len(topics) {
				t.Fatalf("%d signals wait, limit %d", b.Len(), limit)
			}
			st := b.Stats()
			if st.Put != put || st.Put != taken+st.Coalesced+st.Dropped+uint64(b.Len()) || st.Dropped != 0 {
				t.Fatalf("taken %d, waiting %d, %+v do not add up", taken, b.Len(), st)
			}
			for s, first := range owed {
				if mark, ok := b.Oldest(); !ok || mark > first {
					t.Fatalf("oldest mark %d (%v), but %+v of mark %d was not handed out", mark, ok, s, first)
				}
			}
		}
		take(1000)
		if len(owed) > 0 {
			t.Fatalf("lost: %v", owed)
		}
	})
}

func TestBufferCollapse(t *testing.T) {
	b := pending.NewBuffer(3)
	probe := signal.ProbeTopic("p")
	for _, s := range []signal.Signal{
		{Topic: signal.TopicTasks, Payload: "1"},
		{Topic: probe, Payload: "old"},
		{Topic: signal.TopicTasks, Payload: "2"},
		{Topic: signal.TopicTasks, Payload: "3"}, // full: collapses, and is covered
		{Topic: signal.TopicTasks, Payload: "4"}, // covered
		{Topic: probe, Payload: "new"},
	} {
		b.Put(s)
	}
	want := []signal.Signal{{Topic: signal.TopicTasks}, {Topic: probe, Payload: "old"}, {Topic: probe, Payload: "new"}}
	if got := b.TakeBatch(10); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("taken %+v, want %+v", got, want)
	}
	b.Put(signal.Signal{Topic: signal.TopicTasks, Payload: "5"})
	if got := b.TakeBatch(10); len(got) != 1 || got[0].Payload != "5" {
		t.Errorf("after the bare topic was taken: %+v, want payload 5", got)
	}
}

func TestBufferAcceptsEveryTopicWhenFull(t *testing.T) {
	const n = 1000
	b := pending.NewBuffer(2)
	for i := range n {
		for _, payload := range []string{"x", "y", "z"} {
			b.Put(signal.Signal{Topic: signal.WorkerTopic(fmt.Sprint(i)), Payload: payload})
		}
	}
	seen := map[signal.Topic]bool{}
	for _, s := range b.TakeBatch(2 * n) {
		seen[s.Topic] = true
	}
	if len(seen) != n {
		t.Errorf("%d topics of %d", len(seen), n)
	}
}

func TestBufferFailAndClose(t *testing.T) {
	ctx, cause := t.Context(), errors.New("cause")
	b := pending.NewBuffer(0)
	b.Put(signal.Signal{Topic: "t"})
	b.Fail(cause)
	b.Fail(errors.New("later"))
	b.Put(signal.Signal{Topic: "u"})
	if s, err := b.Take(ctx); err != nil || s.Topic != "t" {
		t.Errorf("Take = %+v, %v, want the waiting signal", s, err)
	}
	if _, err := b.Take(ctx); !errors.Is(err, cause) {
		t.Errorf("Take = %v, want the first cause", err)
	}
	c := pending.NewBuffer(0)
	c.Put(signal.Signal{Topic: "t"})
	c.Close()
	if _, err := c.Take(ctx); !errors.Is(err, signal.ErrClosed) {
		t.Errorf("Take = %v, want ErrClosed", err)
	}
	if d := c.Stats().Dropped; d != 1 {
		t.Errorf("Dropped = %d, want 1", d)
	}
}

// TestBufferWakesEveryReader: no token is lost between several readers, one of which
// gives up.
func TestBufferWakesEveryReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers = 5
		b := pending.NewBuffer(0)
		quitter, quit := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = b.Take(quitter) })
		for range readers {
			wg.Go(func() {
				if _, err := b.Take(t.Context()); err != nil {
					t.Errorf("Take: %v", err)
				}
			})
		}
		synctest.Wait()
		quit()
		for i := range readers {
			b.Put(signal.Signal{Topic: "t", Payload: fmt.Sprint(i)})
		}
		synctest.Wait() // a reader that is never woken is a deadlock here
		wg.Wait()
		for range readers {
			wg.Go(func() {
				if _, err := b.Take(t.Context()); !errors.Is(err, signal.ErrClosed) {
					t.Errorf("Take = %v, want ErrClosed", err)
				}
			})
		}
		synctest.Wait()
		b.Close()
		wg.Wait()
	})
}

// TestBufferReaderThatGivesUpPassesTheTokenOn: if a reader is woken for a signal just
// as its context ends, another reader gets the signal.
func TestBufferReaderThatGivesUpPassesTheTokenOn(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			b := pending.NewBuffer(0)
			quitter, quit := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = b.Take(quitter) })
			synctest.Wait() // the quitter is first in line
			wg.Go(func() { _, _ = b.Take(t.Context()) })
			synctest.Wait()
			b.Put(signal.Signal{Topic: "t"})
			quit()
			synctest.Wait()
			if b.Len() > 0 {
				t.Error("a signal and a reader wait, and the reader is not woken")
			}
			b.Close()
			wg.Wait()
		})
	}
}
