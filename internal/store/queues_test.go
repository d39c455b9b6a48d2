package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const queueYAML = `
name: taskmaster
namespace_name: mail
version: 1.0.0
identity: {strategy: always_unique}
steps:
  - name: run
    handler: {callable: taskmaster}
    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 1}
`

var queueLife = store.LivenessLimits{Stale: time.Minute, Dead: time.Hour}

// mailQueue is a queue with tasks, and a worker that has claimed them.
type mailQueue struct {
	*store.Store
	t       *testing.T
	db      *pgtest.DB
	plan    *store.Plan
	worker  store.QueueWorker
	claimed []store.Claimed
}

func newMailQueue(t *testing.T, tasks int) *mailQueue {
	t.Helper()
	s, db := open(t)
	q := &mailQueue{Store: s, t: t, db: db, plan: plan(t, s, queueYAML)}
	q.worker = q.register()
	create(t, s, q.plan, tasks)
	q.claimed = q.claim()
	require.Len(t, q.claimed, tasks)
	return q
}

func (q *mailQueue) register(instance ...string) store.QueueWorker {
	q.t.Helper()
	w, err := q.RegisterQueueWorker(q.t.Context(), store.QueueRegistration{ID: "w", Queue: "mail", Instance: strings.Join(instance, "")}, queueLife)
	require.NoError(q.t, err)
	return w
}

func (q *mailQueue) claim() []store.Claimed {
	q.t.Helper()
	claimed, _, err := q.Claim(q.t.Context(), store.ClaimRequest{Worker: q.worker.Claims, Callables: q.plan.Callables, Tags: q.worker.Tags, Limit: 10, Lease: time.Hour}, true)
	require.NoError(q.t, err)
	return claimed
}

// endLeases has all leases end now.
func (q *mailQueue) endLeases() (lost int) {
	q.t.Helper()
	q.db.Exec(q.t, `update tasker.board set lease_until = clock_timestamp() - interval '1 ms' where lease_until is not null`)
	expired, err := q.ExpireLeases(q.t.Context(), store.UpTo(100), 10)
	require.NoError(q.t, err)
	return expired.Lost
}

func (q *mailQueue) die() {
	q.t.Helper()
	q.db.Exec(q.t, `update tasker.queue_workers set lives_until = clock_timestamp() - interval '1 ms', heartbeat_at = clock_timestamp() - interval '1 hour'`)
}

func TestAClaimOfAQueueLivesAsLongAsItsWorker(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 2)
	require.Zero(t, q.endLeases())
	require.Equal(t, 2, q.db.QueryInt(t, `select count(*) from tasker.board b join tasker.queue_workers w on w.claims = b.worker where b.lease_until = w.lives_until`))

	q.die()
	require.Equal(t, 2, q.endLeases())
	require.Equal(t, []bool{false}, report(t, q.Store, succeed(q.claimed[0], `1`)))
	applyAll(t, q.Store)
	w, lost, err := q.QueueWorkerHeartbeat(t.Context(), "w", []store.HeldClaim{{TaskUUID: q.claimed[0].TaskUUID, Token: q.claimed[0].Token}}, queueLife)
	require.NoError(t, err)
	require.Len(t, lost, 1)
	require.NotEqual(t, q.worker.Claims, w.Claims, "the claims of before its death must not come to life with it")
	require.Equal(t, store.WorkerActive, w.Status)
	noViolations(t, q.Store)
}

// A worker that was dead gets other claims with whatever shows that it lives, and one that is
// alive keeps its own.
func TestTheClaimsOfADeadWorkerStayDead(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 1)
	require.Equal(t, q.worker.Claims, q.register().Claims)
	q.die()
	again := q.register()
	require.NotEqual(t, q.worker.Claims, again.Claims)
	require.Equal(t, 1, q.endLeases())
}

// Another process under the name of a worker has none of its claims, although it lives: a worker
// that is started again must not keep what nothing runs.
func TestAnotherProcessHasOtherClaims(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 1)
	first := q.register("a")
	require.NotEqual(t, q.worker.Claims, first.Claims)
	require.Equal(t, first.Claims, q.register("a").Claims)
	require.NotEqual(t, first.Claims, q.register("b").Claims)
	require.Equal(t, 1, q.endLeases())
}

// A registration by a principal of some namespaces changes no worker of another one, however
// shortly before it was registered.
func TestAWorkerOfAnotherNamespaceIsNotMoved(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 1)
	moved := store.QueueRegistration{ID: "w", Queue: "shop", Instance: "another", Namespaces: []string{"shop"}}
	_, err := q.RegisterQueueWorker(t.Context(), moved, queueLife)
	require.ErrorIs(t, err, store.ErrNotFound)
	w, err := q.QueueWorker(t.Context(), "w", queueLife)
	require.NoError(t, err)
	require.Equal(t, "mail", w.Queue)
	require.Equal(t, q.worker.Claims, w.Claims, "it keeps its claims")
	moved.Namespaces = []string{"shop", "mail"}
	w, err = q.RegisterQueueWorker(t.Context(), moved, queueLife)
	require.NoError(t, err)
	require.Equal(t, "shop", w.Queue)
}

func TestWorkersOfQueuesAreSeenByTheirTimes(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 0)
	status := func(silence time.Duration) store.WorkerStatus {
		t.Helper()
		q.db.Exec(t, `update tasker.queue_workers set heartbeat_at = clock_timestamp() - $1 * interval '1 ms', lives_until = clock_timestamp() + $2 * interval '1 ms'`,
			silence.Milliseconds(), (queueLife.Dead - silence).Milliseconds())
		w, err := q.QueueWorker(t.Context(), "w", queueLife)
		require.NoError(t, err)
		list, err := q.QueueWorkers(t.Context(), "mail", 10, queueLife)
		require.NoError(t, err)
		require.Equal(t, w.Status, list[0].Status)
		return w.Status
	}
	require.Equal(t, store.WorkerActive, status(30*time.Second))
	require.Equal(t, store.WorkerStale, status(2*time.Minute))
	require.Equal(t, store.WorkerDead, status(2*time.Hour))
	_, err := q.QueueWorker(t.Context(), "other", queueLife)
	require.ErrorIs(t, err, store.ErrNotFound)
	_, _, err = q.QueueWorkerHeartbeat(t.Context(), "other", nil, queueLife)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestDeathsAreNotedOnce(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 0)
	deaths := func(dry bool) []string {
		t.Helper()
		found, err := q.NoteQueueDeaths(t.Context(), 10, dry)
		require.NoError(t, err)
		return found.Died
	}
	require.Empty(t, deaths(false))
	q.die()
	require.Equal(t, []string{"w"}, deaths(true))
	require.Equal(t, []string{"w"}, deaths(false))
	require.Empty(t, deaths(false))
	q.register()
	q.die()
	require.Equal(t, []string{"w"}, deaths(false), "it has died again")
}

// The step of a queue's task keeps its tags through retries.
func TestTagsOfAQueueStayWithTheTask(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, queueYAML)
	task := newTask(p)
	task.Context, task.StepTags = json.RawMessage(`{"payload":1,"tags":["gpu","eu"]}`), []string{"gpu", "eu"}
	_, err := s.CreateTasks(t.Context(), []store.NewTask{task})
	require.NoError(t, err)
	with := func(tags ...string) []store.Claimed {
		t.Helper()
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: uuid.Max, Callables: p.Callables, Tags: tags, Limit: 1, Lease: time.Minute}, true)
		require.NoError(t, err)
		return claimed
	}
	for range 3 {
		var claimed []store.Claimed
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			_, err := s.PromoteDue(t.Context(), store.UpTo(10))
			require.NoError(t, err)
			require.Empty(t, with("gpu"))
			claimed = with("eu", "gpu", "us")
			return len(claimed) == 1, "no claim"
		})
		require.Equal(t, []bool{true}, report(t, s, store.Report{ClaimKey: key(claimed[0]), Error: json.RawMessage(`{"message":"no"}`), Retryable: true, RetryAfter: 0}))
		applyAll(t, s)
	}
	ended, err := s.Task(t.Context(), task.UUID)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskError, ended.State)
	noViolations(t, s)
}

// A deadline ends a task of a queue that waits, also after a failure, and none that runs.
func TestDeadlinesOfQueues(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 3)
	for _, c := range q.claimed[1:] {
		require.Equal(t, []bool{true}, report(t, q.Store, store.Report{ClaimKey: key(c), Error: json.RawMessage(`{"message":"no"}`), Retryable: true, RetryAfter: time.Hour}))
	}
	q.db.Exec(t, `update tasker.board set deadline = clock_timestamp() - interval '1 ms' where task_uuid <> $1`, q.claimed[2].TaskUUID)
	applyAll(t, q.Store)
	late, err := q.PastDeadline(t.Context(), 10)
	require.NoError(t, err)
	require.Equal(t, []uuid.UUID{q.claimed[1].TaskUUID}, late)
}

// Tasks that are no queue's lose their deadline when they begin, as before.
func TestOnlyQueuesKeepDeadlines(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML+"    retry: {retryable: true, max_attempts: 3, backoff: fixed, backoff_base_ms: 1000}\n")
	create(t, s, p, 1)
	db.Exec(t, `update tasker.board set deadline = clock_timestamp() - interval '1 ms'`)
	c := claim(t, s, p, 1)[0]
	require.Equal(t, []bool{true}, report(t, s, store.Report{ClaimKey: key(c), Error: json.RawMessage(`{"message":"no"}`), Retryable: true, RetryAfter: -1}))
	applyAll(t, s)
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where deadline is not null`))
}

func TestQueuesAreCounted(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 3)
	create(t, q.Store, q.plan, 2)
	require.Equal(t, []bool{true, true}, report(t, q.Store, succeed(q.claimed[0], `1`), store.Report{ClaimKey: key(q.claimed[1]), Error: json.RawMessage(`{"message":"no"}`), RetryAfter: -1}))
	applyAll(t, q.Store)
	for _, queue := range []string{"mail", ""} {
		counts, err := q.CountQueues(t.Context(), queue, time.Minute)
		require.NoError(t, err)
		require.Equal(t, []store.QueueCounts{{Queue: "mail", Waiting: 2, Claimed: 1, Complete: 1, Failed: 1, ActiveWorkers: 1}}, counts)
	}
	counts, err := q.CountQueues(t.Context(), "other", time.Minute)
	require.NoError(t, err)
	require.Empty(t, counts)
}

func TestQueuesForgetWhatEndedLongAgo(t *testing.T) {
	t.Parallel()
	q := newMailQueue(t, 5)
	require.Equal(t, []bool{true, true, true}, report(t, q.Store, succeed(q.claimed[0], `1`), succeed(q.claimed[1], `1`), succeed(q.claimed[2], `1`)))
	applyAll(t, q.Store)
	gone, err := q.RetainQueues(t.Context(), time.Hour, uuid.Nil, 2, false)
	require.NoError(t, err)
	require.Zero(t, gone.Tasks+gone.Workers)
	q.die()
	const ttl = time.Millisecond
	dry, err := q.RetainQueues(t.Context(), ttl, uuid.Nil, 100, true)
	require.NoError(t, err)
	require.Equal(t, "3 1", fmt.Sprint(dry.Tasks, dry.Workers))
	tasks, workers, after := 0, 0, uuid.Nil
	for more := true; more; {
		gone, err := q.RetainQueues(t.Context(), ttl, after, 2, false)
		require.NoError(t, err)
		require.LessOrEqual(t, gone.Tasks, 2)
		tasks, workers, after, more = tasks+gone.Tasks, workers+gone.Workers, gone.Next, gone.More
	}
	require.Equal(t, "3 1", fmt.Sprint(tasks, workers))
	require.Equal(t, 2, q.db.QueryInt(t, `select count(*) from tasker.tasks`))
}
