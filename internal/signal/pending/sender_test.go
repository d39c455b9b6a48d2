package pending_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/pending"
	"github.com/tasker-go/tasker/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a Transport that keeps its batches. before, when set, runs in each Send
// and decides its result.
type recorder struct {
	before func(ctx context.Context, call int) error

	mu      sync.Mutex
	calls   int
	batches [][]signal.Signal
	at      []time.Time
}

func (r *recorder) Send(ctx context.Context, batch []signal.Signal) error {
	r.mu.Lock()
	call := r.calls
	r.calls++
	r.batches = append(r.batches, slices.Clone(batch))
	r.at = append(r.at, time.Now())
	r.mu.Unlock()
	if r.before == nil {
		return nil
	}
	return r.before(ctx, call)
}

func control(payload string) signal.Signal {
	return signal.Signal{Topic: signal.TopicControl, Payload: payload}
}

func start(t *testing.T, transport signal.Transport, cfg pending.SenderConfig) *pending.Sender {
	t.Helper()
	s := pending.NewSender(transport, cfg)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *pending.Sender) {
	t.Helper()
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// A lone signal is sent at once; signals published during its flush are sent together,
// duplicates once, as soon as the flush returns.
func TestSenderBatchesNaturally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{before: func(context.Context, int) error { time.Sleep(time.Second); return nil }}
		s := start(t, r, pending.SenderConfig{})
		begin := time.Now()
		s.Publish(control("first"))
		synctest.Wait()
		for range 3 {
			s.Publish(control("a"), control("b"), control("a"))
		}
		synctest.Wait()
		if len(r.batches) != 1 {
			t.Fatalf("%d flushes in flight, want 1", len(r.batches))
		}
		stop(t, s)
		want := [][]signal.Signal{{control("first")}, {control("a"), control("b")}}
		if fmt.Sprint(r.batches) != fmt.Sprint(want) {
			t.Errorf("batches %v, want %v", r.batches, want)
		}
		if r.at[0] != begin || r.at[1].Sub(begin) != time.Second {
			t.Errorf("flushes at %v and %v, want 0 and 1 s", r.at[0].Sub(begin), r.at[1].Sub(begin))
		}
		if st := s.Stats(); st.Published != 10 || st.Sent != 3 || st.Coalesced != 7 || st.Flushes != 2 {
			t.Errorf("statistics: %+v", st)
		}
	})
}

func TestSenderBoundsBatches(t *testing.T) {
	r := &recorder{}
	s := pending.NewSender(r, pending.SenderConfig{}.Bounded(0, 4, 0, 0))
	for i := range 10 {
		s.Publish(control(fmt.Sprint(i)))
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	if len(r.batches) != 3 || len(r.batches[0]) != 4 || len(r.batches[2]) != 2 {
		t.Errorf("batches %v, want 4, 4 and 2 signals", r.batches)
	}
}

func TestSenderRetriesOnceThenDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("down")
		r := &recorder{before: func(_ context.Context, call int) error {
			if call < 3 {
				return down
			}
			return nil
		}}
		var seen []error
		cfg := pending.SenderConfig{OnError: func(err error) { seen = append(seen, err) }}.Bounded(0, 0, time.Second, 2*time.Second)
		s := start(t, r, cfg)
		s.Publish(control("lost"))
		synctest.Wait()
		s.Publish(control("kept"))
		time.Sleep(time.Minute)
		synctest.Wait()
		s.Publish(control("at once"))
		synctest.Wait()
		healthy := time.Now()
		stop(t, s)

		want := "[[{tasker_control lost}] [{tasker_control lost}] [{tasker_control kept}] [{tasker_control kept}] [{tasker_control at once}]]"
		if got := fmt.Sprint(r.batches); got != want {
			t.Fatalf("batches %s, want %s", got, want)
		}
		for i, bounds := range [][2]time.Duration{1: {500 * time.Millisecond, time.Second}, 2: {time.Second, 2 * time.Second}, 3: {time.Second, 2 * time.Second}} {
			if i == 0 {
				continue
			}
			if gap := r.at[i].Sub(r.at[i-1]); gap < bounds[0] || gap > bounds[1] {
				t.Errorf("flush %d after %v, want within %v", i, gap, bounds)
			}
		}
		if r.at[4] != healthy {
			t.Error("after a success there was still a pause")
		}
		if len(seen) != 3 || !errors.Is(seen[0], down) {
			t.Errorf("OnError saw %v", seen)
		}
		if st := s.Stats(); st.Failed != 3 || st.Dropped != 1 || st.Sent != 2 || st.Published != 3 {
			t.Errorf("statistics: %+v", st)
		}
	})
}

// The pause follows a failure: a signal that comes long after one is sent at once.
func TestSenderDoesNotPauseLongAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{before: func(_ context.Context, call int) error {
			if call < 2 {
				return errors.New("down")
			}
			return nil
		}}
		s := start(t, r, pending.SenderConfig{})
		s.Publish(control("lost"))
		time.Sleep(time.Hour)
		s.Publish(control("sent"))
		synctest.Wait()
		if st := s.Stats(); st.Sent != 1 {
			t.Errorf("statistics: %+v", st)
		}
		stop(t, s)
	})
}

func TestSenderSurvivesPanicAndStuckTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{before: func(ctx context.Context, call int) error {
			switch call {
			case 0:
				panic("boom")
			case 1:
				<-ctx.Done() // the deadline of the flush
				return ctx.Err()
			}
			return nil
		}}
		s := start(t, r, pending.SenderConfig{FlushTimeout: time.Second})
		s.Publish(control("1"))
		time.Sleep(time.Minute)
		s.Publish(control("2"))
		stop(t, s)
		if st := s.Stats(); st.Failed != 2 || st.Dropped != 1 || st.Sent != 1 {
			t.Errorf("statistics: %+v", st)
		}
	})
}

// A panic in OnError costs only the batch; the sender continues after a pause.
func TestSenderSurvivesPanicOfOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{before: func(_ context.Context, call int) error {
			if call < 2 {
				return errors.New("down")
			}
			return nil
		}}
		restarts := 0
		s := start(t, r, pending.SenderConfig{
			OnError:   func(error) { panic("while telling") },
			OnRestart: func(string) { restarts++ },
		})
		for i := range 3 {
			s.Publish(control(fmt.Sprint(i)))
			time.Sleep(time.Minute)
		}
		if h := s.Health(); h.State != lifecycle.LoopRunning || h.Restarts != 2 || !strings.Contains(h.LastError, "while telling") {
			t.Errorf("health: %+v", h)
		}
		s.Publish(control("at the end"))
		stop(t, s)
		if st := s.Stats(); st.Failed != 2 || st.Dropped != 2 || st.Sent != 2 || st.Waiting != 0 {
			t.Errorf("statistics: %+v", st)
		}
		if restarts != 2 {
			t.Errorf("%d restarts were counted", restarts)
		}
	})
}

// Stop sends the waiting signals, even while the loop is about to restart.
func TestSenderStopsWhileItIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{before: func(_ context.Context, call int) error {
			if call == 0 {
				return errors.New("down")
			}
			return nil
		}}
		s := start(t, r, pending.SenderConfig{OnError: func(error) { panic("while telling") }})
		s.Publish(control("lost"))
		synctest.Wait()
		if h := s.Health(); h.State != lifecycle.LoopRestarting {
			t.Fatalf("health: %+v", h)
		}
		s.Publish(control("sent"))
		stop(t, s)
		if st := s.Stats(); st.Dropped != 1 || st.Sent != 1 {
			t.Errorf("statistics: %+v", st)
		}
	})
}

func TestSenderStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{before: func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }}
		s := start(t, r, pending.SenderConfig{FlushTimeout: time.Hour})
		s.Publish(control("in flight"))
		synctest.Wait()
		s.Publish(control("waiting"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop = %v, want the deadline", err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("Stop took %v, want 3 s", took)
		}
		if st := s.Stats(); st.Dropped != 2 || st.Waiting != 0 {
			t.Errorf("statistics: %+v", st)
		}
	})
}

// Stop does not wait for a backoff: the retry is made at once.
func TestSenderStopCutsThePauseShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{before: func(_ context.Context, call int) error {
			if call == 0 {
				return errors.New("down")
			}
			return nil
		}}
		s := start(t, r, pending.SenderConfig{}.Bounded(0, 0, time.Hour, time.Hour))
		s.Publish(control("x"))
		synctest.Wait()
		begin := time.Now()
		stop(t, s)
		if time.Since(begin) != 0 || s.Stats().Sent != 1 {
			t.Errorf("Stop took %v; %+v", time.Since(begin), s.Stats())
		}
	})
}

func TestSenderLifeCycle(t *testing.T) {
	r := &recorder{}
	ctx, cancel := context.WithCancel(t.Context())
	s := pending.NewSender(r, pending.SenderConfig{})
	s.Publish(control("before Start"))
	for range 2 {
		if err := s.Start(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel() // must not end it
	s.Publish(control("after the end of Start's context"))
	stop(t, s)
	stop(t, s)
	if st := s.Stats(); st.Sent != 2 {
		t.Errorf("statistics: %+v", st)
	}
	s.Publish(control("too late"))
	if st := s.Stats(); st.Dropped != 1 {
		t.Errorf("statistics: %+v", st)
	}
	if err := s.Start(t.Context()); !errors.Is(err, lifecycle.ErrStopped) {
		t.Errorf("Start after Stop = %v", err)
	}

	never := pending.NewSender(r, pending.SenderConfig{})
	never.Publish(control("x"))
	stop(t, never)
	if st := never.Stats(); st.Dropped != 1 || st.Waiting != 0 {
		t.Errorf("never started: %+v", st)
	}
}

func TestSenderJoinsTasks(t *testing.T) {
	r := &recorder{}
	s := pending.NewSender(r, pending.SenderConfig{})
	id := func(i int) string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", i) }
	var ids []string
	for i := range 400 {
		ids = append(ids, id(i))
	}
	s.Publish(
		signal.Signal{Topic: signal.TopicTasks, Payload: ids[0]},
		control("between"),
		signal.Signal{Topic: signal.TopicTasks, Payload: strings.Join(ids, ",")},
		signal.Signal{Topic: signal.TopicTasks, Payload: ", ,"}, // only a hint
	)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop(t, s)
	var got []string
	bare, signals := false, 0
	for _, sig := range r.batches[0] {
		if sig.Topic != signal.TopicTasks {
			continue
		}
		signals++
		if err := sig.Validate(); err != nil {
			t.Error(err)
		}
		if sig.Payload == "" {
			bare = true
			continue
		}
		got = append(got, strings.Split(sig.Payload, ",")...)
	}
	if !slices.Equal(got, ids) || !bare {
		t.Errorf("%d identifiers (bare %v), want %d in order", len(got), bare, len(ids))
	}
	if perPayload := (signal.MaxPayloadBytes + 1) / 37; signals != 1+(len(ids)+perPayload-1)/perPayload {
		t.Errorf("%d signals for %d identifiers", signals, len(ids))
	}
}

// TestSenderSendsOnlyWellFormedAndAddsUp: of all published signals only well-formed ones
// reach the transport, and every signal is accounted for.
func TestSenderSendsOnlyWellFormedAndAddsUp(t *testing.T) {
	topics := []signal.Topic{"", "a\x00", signal.Topic(strings.Repeat("x", 64)), signal.TopicTasks, signal.TopicControl, signal.WorkerTopic("ä")}
	payloads := []string{"", "x", "y", "x,y,z", ",", "\xff", "a\x00", strings.Repeat("p", signal.MaxPayloadBytes), strings.Repeat("p", signal.MaxPayloadBytes+1)}
	rapid.Check(t, func(rt *rapid.T) {
		fails := rapid.SliceOfN(rapid.Bool(), 20, 20).Draw(rt, "fails")
		r := &recorder{before: func(_ context.Context, call int) error {
			if call < len(fails) && fails[call] {
				return errors.New("down")
			}
			return nil
		}}
		s := pending.NewSender(r, pending.SenderConfig{}.Bounded(
			rapid.IntRange(1, 10).Draw(rt, "limit"), rapid.IntRange(1, 5).Draw(rt, "batch"), time.Nanosecond, time.Nanosecond))
		if rapid.Bool().Draw(rt, "start first") {
			if err := s.Start(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		for range rapid.IntRange(0, 40).Draw(rt, "n") {
			s.Publish(signal.Signal{Topic: rapid.SampledFrom(topics).Draw(rt, "topic"), Payload: rapid.SampledFrom(payloads).Draw(rt, "payload")})
		}
		if err := s.Start(t.Context()); err != nil {
			rt.Fatal(err)
		}
		if err := s.Stop(t.Context()); err != nil {
			rt.Fatal(err)
		}
		for _, batch := range r.batches {
			for _, sig := range batch {
				if err := sig.Validate(); err != nil {
					rt.Fatal(err)
				}
			}
		}
		if st := s.Stats(); st.Published != st.Sent+st.Coalesced+st.Dropped || st.Waiting != 0 {
			rt.Fatalf("statistics do not add up: %+v", st)
		}
	})
}

func ExampleSender() {
	s := pending.NewSender(printer{}, pending.SenderConfig{})
	s.Publish(signal.Signal{Topic: signal.WorkerTopic("payments")})
	s.Publish(signal.Signal{Topic: signal.WorkerTopic("payments")}) // coalesces
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		fmt.Println(err)
	}
	if err := s.Stop(ctx); err != nil { // sends what is waiting
		fmt.Println(err)
	}
	// Output: tasker_worker_payments
}

type printer struct{}

func (printer) Send(_ context.Context, batch []signal.Signal) error {
	for _, s := range batch {
		fmt.Println(s.Topic)
	}
	return nil
}
