package operators_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/operators"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// serve gives an orchestrator its API, until the test ends.
func serve(t *testing.T, e *enginetest.Engine, o *orchestration.Orchestrator) *client.Client {
	t.Helper()
	reached := e.API(func(web *rest.Config, of *rest.Orchestrator) {
		web.Logger = zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel))
		of.Engine, of.MaxEventConsumers, of.MaxEventStreams = enginetest.Supervised{Orchestrator: o}, 10, 10
	})
	reached.Timeout, reached.MaxRetries = time.Minute, -1
	return client.New(reached)
}

// left describes the rows of tasks that have not ended.
const left = `
select coalesce(string_agg(what, E'\n'), '') from (
    select concat_ws(' ', 'task', v.task_uuid, v.name, v.state) as what from tasker.board b join tasker.v_tasks v using (task_uuid) where b.slot = 0
    union all select concat_ws(' ', 'message', kind, 'about', task_uuid) from tasker.task_messages
    union all select concat_ws(' ', 'dependency of', task_uuid, 'on', depends_on) from tasker.task_dependencies) l`

// history describes the records of a task.
const history = `
select string_agg(concat_ws(' ', at, what), E'\n' order by at, what) from (
    select applied_at as at, concat_ws(' ', 'attempt', attempt, 'of step', step_no, 'token', token, 'outcome', outcome, reason, 'xmin', xmin::text, 'ends', task_state) as what
    from tasker.step_attempts where task_uuid = $1
    union all
    select at, concat_ws(' ', 'from', from_state, 'to', to_state, actor, reason, metadata) from tasker.task_events where task_uuid = $1
    union all
    select requested_at, concat_ws(' ', 'task', p.name, t.reason) from tasker.tasks t join tasker.plans p using (plan_id) where task_uuid = $1) h`

// Operators act concurrently on tasks of all kinds, over three orchestrators with one
// database: no task is stuck or continues by itself, and the records of every task agree.
// TASKER_TEST_SEED repeats a run, TASKER_TEST_OPERATORS sets its length.
func TestOperatorsActAtRandom(t *testing.T) {
	length := 10 * time.Second
	if testing.Short() {
		length = 4 * time.Second
	}
	seed := rand.Uint64()
	var err error
	if text := os.Getenv("TASKER_TEST_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	if text := os.Getenv("TASKER_TEST_OPERATORS"); text != "" {
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	e := enginetest.Start(t, operators.Register)
	clients := []*client.Client{serve(t, e, e.Orchestrator), serve(t, e, e.AnotherOrchestrator()), serve(t, e, e.AnotherOrchestrator())}
	report, err := operators.Run(t.Context(), operators.Options{Seed: seed, Length: length, Clients: clients, Operators: 24})
	require.NoError(t, err)
	t.Log(report)
	require.Empty(t, report.Failed, "seed %d", seed)
	found, err := operators.Settle(t.Context(), operators.Settling{Client: clients[0], Store: e.Store, Rules: e.Rules, Patience: time.Minute,
		Rows: func(context.Context) ([]string, error) {
			return strings.FieldsFunc(e.DB.QueryString(t, left), func(r rune) bool { return r == '\n' }), nil
		}})
	require.NoError(t, err)
	t.Log(found)
	for _, v := range found.Violations {
		t.Log(e.DB.QueryString(t, history, v.TaskUUID))
	}
	require.True(t, found.OK(), "seed %d: %s", seed, found)
}
