package engine

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/signal"
)

// oneQueue is a board with a namespace and no callables.
type oneQueue struct{ Board }

func (oneQueue) Queues(context.Context, []string) (map[string]int32, error) {
	return map[string]int32{"tests": 1}, nil
}

func (oneQueue) Callables(context.Context) ([]store.Callable, error) { return nil, nil }
func (oneQueue) LimitedCallables(context.Context) (map[int32]store.LimitedCallable, error) {
	return nil, nil
}
func (oneQueue) KnownCallables() []store.Callable { return nil }
func (oneQueue) CallablesVersion() uint64         { return 1 }

// TestASubscriberOfTheStart: a subscriber counts whenever it is added, also between the
// choice of the topics and the end of Start.
func TestASubscriberOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fast := false
		var changes [][]signal.Topic
		var metrics *telemetry.Metrics
		e := New(Config{Board: oneQueue{}, Namespaces: []string{"tests"}, Fast: func() bool { return fast }, HeartbeatInterval: time.Second,
			MaxConcurrent: 1, Report: Report{MaxBatch: 1, MaxPending: 1}, Logger: zap.NewNop(), Metrics: metrics.OrDiscard(),
			OnTopics: func(_ context.Context, topics []signal.Topic) { changes = append(changes, slices.Clone(topics)) }})
		_, err := e.Open(t.Context())
		require.NoError(t, err)
		fast = true
		e.Kick()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.watchQueues(ctx) }()
		synctest.Wait()
		e.Kick()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, [][]signal.Topic{{signal.TopicControl, signal.WorkerTopic("tests"), signal.FastTopic("tests")}}, changes, "once, not again")
		require.NoError(t, e.Close(t.Context()))
	})
}
