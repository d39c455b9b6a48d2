package contract

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tasker-go/tasker/signal"
)

func testCancelledReceive(t *testing.T, s Setup) {
	c := connect(t, s, signal.TopicControl)
	before, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Receive(before); !errors.Is(err, context.Canceled) {
		t.Fatalf("Receive in a cancelled context = %v, want context.Canceled", err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Receive(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Receive in a context that ends = %v, want context.DeadlineExceeded", err)
	}
	send(t, s, signal.Signal{Topic: signal.TopicControl})
	expect(t, c, signal.Signal{Topic: signal.TopicControl})
}

func testCancelledReceiveLosesNone(t *testing.T, s Setup) {
	const n = 200
	topic := signal.WorkerTopic("steady")
	c := connect(t, s, topic)
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			if err := s.Transport.Send(deadline(t), numbered(topic, i, i+1)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	expectNumbers(t, func(ctx context.Context) (signal.Signal, error) {
		for {
			short, cancel := context.WithTimeout(ctx, 500*time.Microsecond)
			sig, err := c.Receive(short)
			cancel()
			if err == nil || !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				return sig, err
			}
		}
	}, n)
	if err := <-sent; err != nil {
		t.Fatalf("Send: %v", err)
	}
}

func testClose(t *testing.T, s Setup) {
	c := connect(t, s, signal.TopicControl)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { closeNow(t, c) })
	}
	wg.Wait()
	closeNow(t, c)
	if _, err := c.Receive(deadline(t)); !errors.Is(err, signal.ErrClosed) {
		t.Errorf("Receive after Close = %v, want ErrClosed", err)
	}
	if err := c.Subscribe(deadline(t), []signal.Topic{signal.TopicTasks}); !errors.Is(err, signal.ErrClosed) {
		t.Errorf("Subscribe after Close = %v, want ErrClosed", err)
	}
}

func testCloseEndsReceive(t *testing.T, s Setup) {
	c := connect(t, s, signal.TopicControl)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Receive(deadline(t))
		ended <- err
	}()
	closeNow(t, c)
	if err := <-ended; !errors.Is(err, signal.ErrClosed) {
		t.Errorf("Receive during Close = %v, want ErrClosed", err)
	}
}

func testKilled(t *testing.T, s Setup) {
	if s.Kill == nil {
		t.Skip("the source has no server that could end the connection")
	}
	c := connect(t, s, signal.TopicControl)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Receive(deadline(t))
		ended <- err
	}()
	begin := time.Now()
	s.Kill(t)
	err := <-ended
	if err == nil || errors.Is(err, signal.ErrClosed) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Receive on a killed connection = %v, want the server's error", err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the end was noticed after %s", took)
	}
	if _, again := c.Receive(deadline(t)); again == nil || again.Error() != err.Error() {
		t.Errorf("Receive once more = %v, want the same error", again)
	}
	if err := c.Subscribe(deadline(t), []signal.Topic{signal.TopicTasks}); err == nil {
		t.Error("Subscribe on a killed connection succeeded")
	}
	closeNow(t, c)

	// The source itself still works. The server releases the resources of the old
	// session once it has noticed its end.
	c = reconnect(t, s, signal.TopicControl)
	send(t, s, signal.Signal{Topic: signal.TopicControl, Payload: "again"})
	for receive(t, c).Payload != "again" { // a slot may send older ones first
	}
}
