package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/workflow"
)

// counter answers counts and records them.
type counter struct {
	depth         map[string]int
	unservedSteps []store.Unserved
	err           error
	calls, ages   int
	limits        []int
	now           time.Time
}

func (c *counter) count(ctx context.Context, limit int) (map[string]int, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, errors.New("no deadline")
	}
	c.calls++
	c.limits = append(c.limits, limit)
	return c.depth, c.err
}

func (c *counter) unserved(ctx context.Context, _ int) ([]store.Unserved, error) {
	if _, ok := ctx.Deadline(); !ok {
		return nil, errors.New("no deadline")
	}
	return c.unservedSteps, c.err
}

// oldest says that the oldest step of each namespace has waited for a minute.
func (c *counter) oldest(context.Context) (map[string]time.Duration, error) {
	c.ages++
	oldest := map[string]time.Duration{}
	for namespace := range c.depth {
		oldest[namespace] = time.Minute
	}
	return oldest, c.err
}

func newCounted(depth map[string]int) (*counter, *queueDepth) {
	c := &counter{depth: depth, now: time.Unix(1000, 0)}
	q := newQueueDepth(c.count, c.unserved, c.oldest, config.QueueDepthThresholds{CriticalThreshold: 10, OverflowThreshold: 20}, telemetry.Discard())
	q.now = func() time.Time { return c.now }
	q.ages.now = q.now
	return c, q
}

func TestQueueDepthIsJudgedByTheLongestQueue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		depth map[string]int
		want  deploymode.Level
		says  string
	}{
		"no namespaces":  {map[string]int{}, deploymode.Healthy, "no step waits"},
		"nothing waits":  {map[string]int{"a": 0, "b": 0}, deploymode.Healthy, "no step waits"},
		"below critical": {map[string]int{"a": 9, "b": 9, "c": 1}, deploymode.Healthy, "9 steps wait in a"},
		"critical":       {map[string]int{"a": 9, "b": 10}, deploymode.Degraded, "10 steps wait in b"},
		"below overflow": {map[string]int{"b": 19}, deploymode.Degraded, "19 steps wait in b"},
		"overflow":       {map[string]int{"b": 20}, deploymode.Unhealthy, "20 steps wait in b"},
		"beyond":         {map[string]int{"b": 21}, deploymode.Unhealthy, "more than 20 steps wait in b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			counted, q := newCounted(c.depth)
			check := q.check(t.Context())
			require.Equal(t, c.want, check.Status)
			require.Equal(t, c.says, check.Message)
			require.Equal(t, []int{21}, counted.limits, "up to the last threshold")
		})
	}
}

func TestQueueDepthIsCountedOnceASecond(t *testing.T) {
	t.Parallel()
	c, q := newCounted(map[string]int{"a": 1})
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() { q.check(t.Context()) })
	}
	group.Wait()
	require.Equal(t, 1, c.calls)
	require.Zero(t, c.ages, "only a scrape asks for ages")
	c.now = c.now.Add(depthAge)
	require.NoError(t, testutil.CollectAndCompare(q, strings.NewReader(`
# HELP tasker_queue_depth Claimable steps, counted up to one more than overflow_threshold.
# TYPE tasker_queue_depth gauge
tasker_queue_depth{namespace="a"} 1
# HELP tasker_queue_oldest_seconds For how long the oldest claimable step has been claimable.
# TYPE tasker_queue_oldest_seconds gauge
tasker_queue_oldest_seconds{namespace="a"} 60
# HELP tasker_steps_without_worker Claimable steps that no live worker can run, counted up to one more than overflow_threshold for each callable.
# TYPE tasker_steps_without_worker gauge
tasker_steps_without_worker{namespace="a"} 0
`)))
	require.Equal(t, 2, c.calls)
	require.Equal(t, 1, c.ages)
	left, cancel := context.WithCancel(t.Context())
	cancel()
	c.now = c.now.Add(depthAge)
	require.Equal(t, deploymode.Healthy, q.check(left).Status, "a caller that leaves does not abort the others")
}

func TestQueueDepthOfADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	c, q := newCounted(map[string]int{"a": 1})
	q.check(t.Context())
	c.err, c.now = errors.New("host db-7 is away"), c.now.Add(depthAge)
	require.Zero(t, testutil.CollectAndCount(q), "the scrape continues without it")
	check := q.check(t.Context())
	require.Equal(t, deploymode.Unknown, check.Status)
	require.NotContains(t, check.Message, "db-7")
	require.Equal(t, 2, c.calls, "a failure is remembered as well")
	c.err, c.now = nil, c.now.Add(depthAge)
	require.Equal(t, 3, testutil.CollectAndCount(q))
}

func TestStepsWithoutAWorkerAreReported(t *testing.T) {
	t.Parallel()
	c, q := newCounted(map[string]int{"a": 9, "b": 1})
	check := q.checkWorkers(t.Context())
	require.Equal(t, deploymode.Healthy, check.Status)
	handler := workflow.HandlerReference{Callable: "pay.charge"}
	c.now = c.now.Add(depthAge)
	c.unservedSteps = []store.Unserved{
		{Namespace: "a", Handler: handler, Steps: 5, Workers: true, Handlers: []string{"pay.change", "mail.send"}},
		{Namespace: "a", Handler: workflow.HandlerReference{Callable: "x", Method: "m", Resolver: "r"}, Steps: 2, Workers: true},
		{Namespace: "b", Handler: handler, Steps: 1},
		{Namespace: "b", Handler: handler, Steps: 1},
	}
	check = q.checkWorkers(t.Context())
	require.Equal(t, deploymode.Degraded, check.Status)
	require.Equal(t, "9 steps wait for a worker that can run them (a: no worker serves pay.charge; did you mean pay.change; "+
		"a: no worker serves x (method m) (resolver r); b: no worker serves namespace b; and 1 more)", check.Message)
	require.NoError(t, testutil.CollectAndCompare(q, strings.NewReader(`
# HELP tasker_steps_without_worker Claimable steps that no live worker can run, counted up to one more than overflow_threshold for each callable.
# TYPE tasker_steps_without_worker gauge
tasker_steps_without_worker{namespace="a"} 7
tasker_steps_without_worker{namespace="b"} 2
`), "tasker_steps_without_worker"))
	c.err, c.now = errors.New("away"), c.now.Add(depthAge)
	require.Equal(t, deploymode.Unknown, q.checkWorkers(t.Context()).Status)
}
