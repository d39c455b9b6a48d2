package mux_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/inproc"
	"github.com/tasker-go/tasker/signal/internal/contract"
	"github.com/tasker-go/tasker/signal/mux"
)

func TestContract(t *testing.T) {
	contract.Run(t, func(*testing.T) contract.Setup {
		bus := inproc.New()
		return contract.Setup{Source: mux.New(bus, mux.Config{BufferLimit: signal.DefaultBufferLimit}), Transport: bus}
	})
}

var (
	topicA = signal.WorkerTopic("a")
	topicB = signal.WorkerTopic("b")
	topicC = signal.WorkerTopic("c")
)

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// connect leaves closing to the test.
func connect(t *testing.T, s signal.Source, topics ...signal.Topic) signal.Connection {
	t.Helper()
	c, err := s.Connect(bounded(t), topics)
	require.NoError(t, err)
	return c
}

func closeAll(t *testing.T, connections ...signal.Connection) {
	t.Helper()
	for _, c := range connections {
		require.NoError(t, c.Close(bounded(t)))
	}
}

func receive(t *testing.T, c signal.Connection) signal.Signal {
	t.Helper()
	s, err := c.Receive(bounded(t))
	require.NoError(t, err)
	return s
}

// expectNothing is for bubbles: after Wait no signal can be on its way.
func expectNothing(t *testing.T, c signal.Connection) {
	t.Helper()
	synctest.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	s, err := c.Receive(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded, "received %v", s)
}

func TestMembersShareOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		require.Equal(t, "fake", s.Name())
		x, y := connect(t, s, topicA, topicC), connect(t, s, topicB, topicC)
		open, connects, topics := f.state()
		require.Equal(t, []int{1, 1}, []int{open, connects})
		require.ElementsMatch(t, []signal.Topic{topicA, topicB, topicC}, topics)

		f.publish(signal.Signal{Topic: topicA}, signal.Signal{Topic: topicB}, signal.Signal{Topic: topicC})
		require.Equal(t, signal.Signal{Topic: topicA}, receive(t, x))
		require.Equal(t, signal.Signal{Topic: topicC}, receive(t, x))
		require.Equal(t, signal.Signal{Topic: topicB}, receive(t, y))
		require.Equal(t, signal.Signal{Topic: topicC}, receive(t, y))

		require.NoError(t, x.Subscribe(bounded(t), []signal.Topic{topicB}))
		_, _, topics = f.state()
		require.ElementsMatch(t, []signal.Topic{topicB, topicC}, topics, "no member has topic A any more")
		f.publish(signal.Signal{Topic: topicC}, signal.Signal{Topic: topicB})
		require.Equal(t, signal.Signal{Topic: topicB}, receive(t, x))

		closeAll(t, y)
		synctest.Wait()
		open, _, topics = f.state()
		require.Equal(t, 1, open)
		require.Equal(t, []signal.Topic{topicB}, topics)
		closeAll(t, x, y)
		open, connects, _ = f.state()
		require.Equal(t, []int{0, 1}, []int{open, connects}, "the last one closes it")
		closeAll(t, connect(t, s))
		_, connects, _ = f.state()
		require.Equal(t, 2, connects)
	})
}

// TestTopicsAreInPlaceBeforeAnybodyGoesOn: also topics that another member dropped a
// moment ago.
func TestTopicsAreInPlaceBeforeAnybodyGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit, SubscribeTimeout: time.Hour})
		stays, leaves := connect(t, s, topicC), connect(t, s, topicA)
		gate := make(chan struct{})
		f.set(func() { f.subscribing = gate })
		closeAll(t, leaves) // does not wait until its topic is dropped
		synctest.Wait()
		comes := make(chan signal.Connection)
		go func() {
			c, err := s.Connect(t.Context(), []signal.Topic{topicA})
			if err != nil {
				t.Errorf("Connect: %v", err)
			}
			comes <- c
		}()
		synctest.Wait()
		select {
		case <-comes:
			t.Fatal("connected to a topic that is being dropped")
		default:
		}
		close(gate)
		c := <-comes
		f.publish(signal.Signal{Topic: topicA, Payload: "not missed"})
		require.Equal(t, "not missed", receive(t, c).Payload)
		closeAll(t, c, stays)
	})
}

func TestAllLearnWhyItBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		x, y := connect(t, s, topicA), connect(t, s, topicA)
		f.publish(signal.Signal{Topic: topicA, Payload: "before"})
		f.breakAll()
		for _, c := range []signal.Connection{x, y} {
			require.Equal(t, "before", receive(t, c).Payload)
			_, err := c.Receive(bounded(t))
			require.ErrorIs(t, err, errBroken)
			require.ErrorIs(t, c.Subscribe(bounded(t), nil), errBroken)
			require.ErrorIs(t, c.Probe(bounded(t), signal.Signal{Topic: topicA}), errBroken)
		}
		closeAll(t, x)
		x2 := connect(t, s, topicA) // while y has not closed yet
		closeAll(t, y)
		y2 := connect(t, s, topicA)
		_, connects, _ := f.state()
		require.Equal(t, 2, connects, "the first to come back opens it for both")
		f.publish(signal.Signal{Topic: topicA, Payload: "after"})
		require.Equal(t, "after", receive(t, x2).Payload)
		require.Equal(t, "after", receive(t, y2).Payload)
		closeAll(t, x2, y2)
	})
}

func TestPanicIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		c := connect(t, s, topicA)
		f.publish(signal.Signal{Topic: topicA, Payload: "panic"})
		_, err := c.Receive(bounded(t))
		require.ErrorContains(t, err, "the source has a fault")
		closeAll(t, c)
		open, _, _ := f.state()
		require.Zero(t, open)
	})
}

// TestSlowMember: a member that does not receive loses payloads, and blocks no other.
func TestSlowMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: 2})
		slow, quick := connect(t, s, topicA), connect(t, s, topicA)
		for _, payload := range []string{"1", "2", "3", "4"} {
			f.publish(signal.Signal{Topic: topicA, Payload: payload})
			require.Equal(t, payload, receive(t, quick).Payload)
		}
		require.Equal(t, signal.Signal{Topic: topicA}, receive(t, slow))
		expectNothing(t, slow)
		closeAll(t, slow, quick)
	})
}

func TestOneAttemptForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f := &fake{down: errDown, connecting: gate}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		failed := make(chan error)
		for range 3 {
			go func() {
				_, err := s.Connect(t.Context(), nil)
				failed <- err
			}()
		}
		synctest.Wait()
		close(gate)
		for range 3 {
			require.ErrorIs(t, <-failed, errDown)
		}
		_, connects, _ := f.state()
		require.Equal(t, 1, connects)
		f.set(func() { f.down = nil })
		closeAll(t, connect(t, s))
	})
}

// TestImpatientOpener: the members that wait still connect when the opener gives up.
func TestImpatientOpener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		f := &fake{connecting: gate}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		impatient, cancel := context.WithCancel(t.Context())
		gaveUp, connected := make(chan error), make(chan signal.Connection)
		go func() {
			_, err := s.Connect(impatient, []signal.Topic{topicA})
			gaveUp <- err
		}()
		synctest.Wait()
		go func() {
			c, err := s.Connect(t.Context(), []signal.Topic{topicB})
			if err != nil {
				t.Errorf("Connect: %v", err)
			}
			connected <- c
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		close(gate)
		c := <-connected
		_, _, topics := f.state()
		require.Equal(t, []signal.Topic{topicB}, topics)
		closeAll(t, c)
	})
}

// TestWhoGivesUpLeavesNothing: neither a member nor its topics.
func TestWhoGivesUpLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit, SubscribeTimeout: time.Hour})
		c := connect(t, s, topicA)
		gate := make(chan struct{})
		f.set(func() { f.subscribing = gate })
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Connect(short, []signal.Topic{topicB})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(gate)
		synctest.Wait()
		_, _, topics := f.state()
		require.Equal(t, []signal.Topic{topicA}, topics)
		closeAll(t, c)
		open, _, _ := f.state()
		require.Zero(t, open)
	})
}

// TestHungSubscription: it ends the connection for all, whichever member waits for it.
func TestHungSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit, SubscribeTimeout: 3 * time.Second})
		x, y := connect(t, s, topicA), connect(t, s, topicA)
		f.set(func() { f.subscribing = make(chan struct{}) })
		begin := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, y.Subscribe(short, []signal.Topic{topicB}), context.DeadlineExceeded)
		_, err := x.Receive(bounded(t))
		require.ErrorContains(t, err, "subscribing the shared connection")
		require.Equal(t, 3*time.Second, time.Since(begin))
		closeAll(t, x, y)
	})
}

// TestTheNextWaitsForTheEnd: a persistent slot has one reader. A connection that does
// not end must not block the next one.
func TestTheNextWaitsForTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := mux.New(f, mux.Config{BufferLimit: signal.DefaultBufferLimit, CloseTimeout: 3 * time.Second})
		for _, hangs := range []bool{false, true} {
			x := connect(t, s, topicA)
			gate := make(chan struct{})
			f.set(func() { f.closing = gate })
			if !hangs {
				time.AfterFunc(time.Second, func() { close(gate) })
			}
			f.breakAll()
			_, err := x.Receive(bounded(t))
			require.ErrorIs(t, err, errBroken)
			begin := time.Now()
			y := connect(t, s, topicA)
			require.Equal(t, map[bool]time.Duration{false: time.Second, true: 3 * time.Second}[hangs], time.Since(begin))
			f.set(func() { f.closing = nil })
			closeAll(t, y)
			err = x.Close(bounded(t))
			require.Equal(t, hangs, err != nil, "%v", err)
		}
	})
}

func TestLagBytes(t *testing.T) {
	for _, lag := range []int64{0, 42} {
		s := mux.New(&fake{lagBytes: lag}, mux.Config{BufferLimit: signal.DefaultBufferLimit})
		c := connect(t, s)
		l, ok := c.(interface{ LagBytes() int64 })
		require.Equal(t, lag != 0, ok, "only where the source knows")
		if ok {
			require.Equal(t, lag, l.LagBytes())
		}
		closeAll(t, c)
	}
}
