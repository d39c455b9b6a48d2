package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// variedTasks differ in every property of copied tasks.
func variedTasks(lone, forked *store.Plan, n int) []store.NewTask {
	tasks := make([]store.NewTask, n)
	for i := range tasks {
		p, identity := lone, dedup.Identity{byte(i), byte(i >> 8), 1}
		if i%3 == 0 {
			p = forked
		}
		t := store.NewTask{UUID: uuid.Must(uuid.NewV7()), Plan: p, Context: json.RawMessage(fmt.Sprintf(`{"n": %d, "text": %q}`, i, `ä"`+long(i))),
			Priority: i % 3, CorrelationID: uuid.Must(uuid.NewV7()), Initiator: "i", IdempotencyKey: fmt.Sprint(i), Identity: &identity, Watched: i%5 == 0}
		switch i % 7 {
		case 0:
			t.Tags, t.Reason = []string{"a", "b"}, "because"
		case 1:
			t.StartIn, t.DeadlineIn = time.Hour, 2*time.Hour
		case 2:
			t.IdentityEnd.After = 24 * time.Hour
		case 3:
			t.CorrelationID = t.UUID
			parent := uuid.Must(uuid.NewV7())
			t.ParentCorrelationID = &parent
		case 4:
			t.Identity, t.IdempotencyKey = nil, ""
		case 5:
			t.Retry = &workflow.RetryOverride{MaxAttempts: 2}
		}
		tasks[i] = t
	}
	return tasks
}

// long is empty, or makes a context just fit in the board's row, or exceed it.
func long(i int) string { return strings.Repeat("x", []int{0, 478, 479, 480, 481, 482, 600}[i%11%7]) }

const forkedYAML = `
name: forked
namespace_name: shapes
version: 1.0.0
steps:
  - {name: left, handler: {callable: left}, retry: {retryable: false}}
  - {name: right, handler: {callable: right}}
  - {name: end, dependencies: [left, right], handler: {callable: end}}
`

// TestCopiedTasksAreLikeInsertedOnes: both ways write the same rows, except for clock and
// sequences.
func TestCopiedTasksAreLikeInsertedOnes(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	lone, forked := plan(t, s, loneYAML), plan(t, s, forkedYAML)
	const n = 300
	rows := func(tasks []store.NewTask) (list []string) {
		ids := make([]uuid.UUID, len(tasks))
		place := map[uuid.UUID]int{}
		for i := range tasks {
			ids[i], place[tasks[i].UUID] = tasks[i].UUID, i
		}
		for _, query := range []string{
			`select task_uuid, slot, (to_jsonb(b) - array['task_uuid', 'seq', 'requested_at', 'due_at', 'enqueued_at', 'deadline', 'correlation_id', 'parent_correlation_id'])::text
			 || concat_ws('|', seq > 0, due_at - requested_at > '1 h' - interval '10 s', due_at - requested_at <= '1 h' + interval '10 s', enqueued_at - requested_at < '10 s',
			              date_trunc('minute', deadline - requested_at), correlation_id is null, parent_correlation_id is null)
			 from tasker.board b where task_uuid = any ($1)`,
			`select task_uuid, 0, (to_jsonb(b) - array['task_uuid', 'requested_at', 'start_at', 'deadline', 'correlation_id', 'parent_correlation_id'])::text
			 || concat_ws('|', date_trunc('minute', start_at - requested_at), date_trunc('minute', deadline - requested_at), correlation_id is null, parent_correlation_id is null)
			 from tasker.tasks b where task_uuid = any ($1)`,
			`select i.task_uuid, 0, i.identity::text || case when i.expires_at = 'infinity' then 'for ever' else date_trunc('minute', i.expires_at - t.requested_at)::text end
			 from tasker.task_identities i join tasker.tasks t using (task_uuid) where i.task_uuid = any ($1)`,
		} {
			found := map[string]string{}
			read, err := db.Pool(t).Query(t.Context(), query+` order by 1, 2`, ids)
			require.NoError(t, err)
			for read.Next() {
				var id uuid.UUID
				var slot int
				var text string
				require.NoError(t, read.Scan((*[16]byte)(&id), &slot, &text))
				found[fmt.Sprintf("%04d.%d", place[id], slot)] = text
			}
			require.NoError(t, read.Err())
			list = append(list, fmt.Sprint(found)) // maps are printed in order
		}
		return list
	}
	copied := variedTasks(lone, forked, n)
	answers, err := s.CreateTasks(t.Context(), copied)
	require.NoError(t, err)
	for i, a := range answers {
		require.Equal(t, store.CreatedTask{UUID: copied[i].UUID, RequestedAt: a.RequestedAt}, a)
		require.False(t, a.RequestedAt.IsZero())
	}
	require.Equal(t, 1, db.QueryInt(t, `select count(distinct requested_at) from tasker.tasks`))
	want := rows(copied)
	db.Exec(t, `truncate tasker.tasks, tasker.board, tasker.task_identities`)

	inserted := variedTasks(lone, forked, n)
	for at := 0; at < n; at += 50 {
		_, err := s.CreateTasks(t.Context(), inserted[at:at+50])
		require.NoError(t, err)
	}
	require.Equal(t, want, rows(inserted))
}

// TestDuplicatesAmongCopiedTasks: some of many exist already, some appear twice, another
// transaction is creating one.
func TestDuplicatesAmongCopiedTasks(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, loneYAML)
	some := func(from, n int) []store.NewTask {
		tasks := make([]store.NewTask, n)
		for i := range tasks {
			identity := dedup.Identity{byte(from + i), byte((from + i) >> 8)}
			tasks[i] = newTask(p)
			tasks[i].Identity = &identity
		}
		return tasks
	}
	first := some(0, 200)
	_, err := s.CreateTasks(t.Context(), first)
	require.NoError(t, err)

	second := append(some(150, 200), some(349, 1)...) // 50 exist, and the last one appears twice
	answers, err := s.CreateTasks(t.Context(), second)
	require.NoError(t, err)
	for i, a := range answers {
		switch {
		case i < 50:
			require.True(t, a.Duplicate)
			require.Equal(t, first[150+i].UUID, a.UUID)
		case i == 200:
			require.True(t, a.Duplicate)
			require.Equal(t, second[199].UUID, a.UUID)
		default:
			require.False(t, a.Duplicate)
			require.Equal(t, second[i].UUID, a.UUID)
		}
	}
	require.Equal(t, 350, db.QueryInt(t, `select count(*) from tasker.board`))

	// Sent again after a lost answer: the tasks exist and are not duplicates of
	// themselves.
	again, err := s.CreateTasks(t.Context(), second[:200])
	require.NoError(t, err)
	require.Equal(t, answers[50:200], again[50:])
	require.Equal(t, 350, db.QueryInt(t, `select count(*) from tasker.tasks`))

	tx, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = store.CreateTasksIn(t.Context(), tx, store.AnnounceNothing, some(1000, 1)...)
	require.NoError(t, err)
	fresh, err := store.Open(t.Context(), store.Options{URL: db.DSN}) // has met no duplicate yet
	require.NoError(t, err)
	t.Cleanup(fresh.Close)
	answers, err = fresh.CreateTasks(t.Context(), some(900, 150))
	require.NoError(t, err)
	for i, a := range answers {
		require.Equal(t, i == 100, a.Busy, i)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 499, db.QueryInt(t, `select count(*) from tasker.board`))
}
