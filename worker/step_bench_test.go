package worker

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

// busyBoard offers a number of steps at no cost of its own.
type busyBoard struct {
	*fakeBoard

	mu       sync.Mutex
	left     int
	token    int64
	answered int
	total    int
	done     chan struct{}
	template store.Claimed
	accepted []bool
}

func (b *busyBoard) Claim(_ context.Context, req store.ClaimRequest, _ bool) ([]store.Claimed, store.Rest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(req.Limit, b.left)
	b.left -= n
	if n == 0 {
		return nil, 0, nil
	}
	out := make([]store.Claimed, n)
	for i := range out {
		b.token++
		out[i] = b.template
		out[i].Token = b.token
	}
	return out, 0, nil
}

func (b *busyBoard) Report(_ context.Context, reports []store.Report) ([]bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.accepted) < len(reports) {
		b.accepted = append(b.accepted, true)
	}
	if b.answered += len(reports); b.answered == b.total {
		close(b.done)
	}
	return b.accepted[:len(reports)], nil
}

// WorkerHeartbeat loses no claims: the board does not know them.
func (b *busyBoard) WorkerHeartbeat(context.Context, store.Daemon, []store.ClaimKey, time.Duration) ([]int64, error) {
	return nil, nil
}

// BenchmarkStep measures the engine's overhead per step with a trivial handler, from the
// claim's answer to the report's.
func BenchmarkStep(b *testing.B) {
	type in struct {
		N int `json:"n"`
	}
	for name, do := range map[string]HandlerFunc{
		"plain": func(*StepContext) (any, error) { return nil, nil },
		"typed": Typed(func(_ *StepContext, i in) (map[string]int, error) { return map[string]int{"n": i.N * i.N}, nil }),
		"waits": func(ctx *StepContext) (any, error) { // uses Done, like handlers that call other services
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			default:
				return nil, nil
			}
		},
	} {
		b.Run(name, func(b *testing.B) { benchmarkSteps(b, do) })
	}
}

func benchmarkSteps(b *testing.B, do HandlerFunc) {
	board := &busyBoard{fakeBoard: newFakeBoard(b, oneYAML), left: b.N, total: b.N, done: make(chan struct{})}
	board.template = store.Claimed{TaskUUID: uuid.Must(uuid.NewV7()), PlanID: board.plan.ID, Queue: queueOne, Attempt: 1,
		Context: json.RawMessage(`{"n":2}`), CorrelationID: uuid.Must(uuid.NewV7())}
	bus := inproc.New()
	w, err := New(Config{DatabaseURL: "postgres://unused", EventSource: bus, Publisher: &published{}, Namespaces: []string{"tests"},
		Prefetch: 490})
	require.NoError(b, err)
	w.board = board
	require.NoError(b, w.Register("do", do))
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, w.Start(b.Context()))
	bus.Publish(signal.Signal{Topic: signal.WorkerTopic("tests")})
	select {
	case <-board.done:
	case <-time.After(time.Minute):
		b.Fatal("the steps were not reported")
	}
	b.StopTimer()
	require.NoError(b, w.Stop(b.Context()))
}
