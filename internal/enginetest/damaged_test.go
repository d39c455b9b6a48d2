package enginetest_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// blockSize is that of PostgreSQL.
const blockSize = 8192

// large returns a context that PostgreSQL stores beside its row.
func large(n, size int) []byte {
	noise := make([]byte, size/2)
	_, _ = rand.Read(noise)
	return fmt.Appendf(nil, `{"n": %d, "noise": "%s"}`, n, hex.EncodeToString(noise))
}

// TestADamagedContextStopsOnlyItsTask: of seven contexts one is on a page of the disk that was
// zeroed. Two workers run the other tasks, and the damaged one ends as failed, once others pass.
func TestADamagedContextStopsOnlyItsTask(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, nil)
	db := server.NewMigrated(t, "damaged", enginetest.Migrate)
	f := &rejectedRun{rejectedFlow: &rejectedFlow{template: fmt.Sprintf(onePlain, "rejected.plain")}}
	core, logs := observer.New(zapcore.InfoLevel)
	e := enginetest.StartOn(t, db, func(w *worker.Worker) error { return enginetest.RegisterTemplates(w, f.template) },
		func(c *orchestration.Config, w *worker.Config) { c.DeadLetters, w.Logger = true, zap.New(core) })
	requests := make([]orchestration.Request, 7)
	for i := range requests {
		requests[i] = orchestration.Request{Namespace: "test", Name: "rejected", Version: "1.0.0", Context: large(i, 40_000), Initiator: "t"}
	}
	requests[3].Context = large(3, 120_000)
	tasks := make([]uuid.UUID, len(requests))
	for i, created := range e.Orchestrator.CreateMany(t.Context(), requests) {
		require.NoError(t, created.Err)
		tasks[i] = created.UUID
	}
	damage(t, db, "tasks")
	pgtest.Eventually(t, patience, func() (bool, string) {
		return e.Store.CheckSchema(t.Context()) == nil, "the store does not reach its server again"
	})
	for range 2 {
		e.AnotherWorker(f.register)
	}
	for i, task := range tasks {
		if i != 3 {
			pgtest.Eventually(t, patience, func() (bool, string) {
				ends, err := e.Store.TaskEnds(t.Context(), []uuid.UUID{task})
				return err == nil && ends[task] == workflow.TaskComplete, "a task is not complete beside a damaged one"
			})
		}
	}
	named := func() (bool, string) {
		for _, line := range logs.FilterMessageSnippet("the database rejects a row").All() {
			if line.ContextMap()["task_uuid"] == tasks[3].String() {
				return true, ""
			}
		}
		return false, "the log does not name the damaged task"
	}
	pgtest.Eventually(t, patience, named)
	page, err := e.Store.Tasks(t.Context(), store.TaskFilter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Tasks, 7, "lists do not read contexts")
	contexts, err := e.Store.Contexts(t.Context(), tasks)
	require.NoError(t, err)
	require.Len(t, contexts, 6, "the others are read")
	n := 100
	pgtest.Eventually(t, patience, func() (bool, string) {
		n++
		require.Equal(t, workflow.TaskComplete, e.Run("test", "rejected", fmt.Sprintf(`{"n": %d}`, n)).State)
		ends, err := e.Store.TaskEnds(t.Context(), []uuid.UUID{tasks[3]})
		require.NoError(t, err)
		return ends[tasks[3]] == workflow.TaskError, "the damaged task does not end"
	})
	letter, err := e.Store.DeadLetterOfTask(t.Context(), tasks[3])
	require.NoError(t, err)
	require.Equal(t, tasks[3], letter.TaskUUID)
}

// damage zeroes a page of the disk in the middle of the largest value of each table, or of its partition of today. repair
// writes them back.
func damage(t *testing.T, db *pgtest.DB, tables ...string) (repair func()) {
	t.Helper()
	db.Exec(t, `checkpoint`)
	cluster := db.Server()
	pages := map[string]int64{}
	for _, table := range tables {
		toast := `select c.reltoastrelid::regclass from pg_class c left join pg_inherits i on i.inhrelid = c.oid
			where 'tasker.` + table + `'::regclass in (c.oid, i.inhparent) and c.reltoastrelid <> 0 order by pg_relation_size(c.reltoastrelid) desc limit 1`
		name := db.QueryString(t, `select (`+toast+`)::text`)
		path := db.QueryString(t, `select pg_relation_filepath((`+toast+`))`)
		block := db.QueryInt(t, `select (ctid::text::point)[0]::int + 1 from `+name+` where chunk_id = (
			select chunk_id from `+name+` group by chunk_id order by count(*) desc limit 1) order by chunk_seq offset 20 limit 1`)
		pages[filepath.Join(cluster.DataDir(), "pgdata", path)] = int64(block) * blockSize
	}
	kept := map[string][]byte{}
	write := func(page func(path string) []byte) {
		t.Helper()
		require.NoError(t, cluster.Kill(t.Context())) // nothing behind the checkpoint restores the page
		for path, at := range pages {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			content := page(path)
			kept[path] = make([]byte, blockSize)
			_, err = file.ReadAt(kept[path], at)
			require.NoError(t, err)
			_, err = file.WriteAt(content, at)
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}
		require.NoError(t, cluster.Restart(t.Context()))
	}
	write(func(string) []byte { return make([]byte, blockSize) })
	return func() { write(func(path string) []byte { return slices.Clone(kept[path]) }) }
}

// Lists of approvals and of dead letters leave out what is on a damaged page, and say which.
func TestListsLeaveOutDamagedRows(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, nil)
	db := server.NewMigrated(t, "damaged", enginetest.Migrate)
	e := enginetest.StartOn(t, db, func(w *worker.Worker) error {
		return enginetest.RegisterTemplates(w, "{name: asks, namespace_name: test, version: 1.0.0, steps: [{name: approve, type: approval, wait: {prompt: May it?}}]}")
	})
	var told []string
	reader, err := store.Open(t.Context(), store.Options{URL: db.DSN, OnRejected: func(_, row string, _ error) { told = append(told, row) }})
	require.NoError(t, err)
	t.Cleanup(reader.Close)
	tasks := make([]uuid.UUID, 5)
	for i := range tasks {
		tasks[i] = e.Submit("test", "asks", fmt.Sprintf(`{"n": %d}`, i))
		_, _, err := e.Store.OpenDeadLetter(t.Context(), tasks[i], workflow.DeadLetterManual, "look at it", "ana", nil)
		require.NoError(t, err)
	}
	page := func(f store.ApprovalFilter) store.ApprovalPage {
		page, err := reader.Approvals(t.Context(), f)
		require.NoError(t, err)
		return page
	}
	pgtest.Eventually(t, patience, func() (bool, string) {
		return len(page(store.ApprovalFilter{Limit: 10}).Approvals) == len(tasks), "not every task waits for its approval"
	})
	noise := make([]byte, 60_000)
	_, _ = rand.Read(noise)
	text := hex.EncodeToString(noise)
	db.Exec(t, `update tasker.board set wait = jsonb_set(wait, '{prompt}', to_jsonb($2::text)) where task_uuid = $1 and awaits is not null`, tasks[2], text)
	db.Exec(t, `update tasker.dlq_entries set task_snapshot = task_snapshot || jsonb_build_object('noise', $2::text) where task_uuid = $1`, tasks[3], text)
	entry := db.QueryString(t, `select dlq_entry_uuid::text from tasker.dlq_entries where task_uuid = $1`, tasks[3])
	repair := damage(t, db, "board", "dlq_entries")

	for name, f := range map[string]store.ApprovalFilter{"all": {Limit: 10}, "of a namespace": {Limit: 10, Namespace: "test"}} {
		found := page(f)
		require.Len(t, found.Approvals, len(tasks)-1, name)
		require.Equal(t, []uuid.UUID{tasks[2]}, found.Unreadable, name)
	}
	require.Equal(t, []uuid.UUID{tasks[2]}, page(store.ApprovalFilter{Limit: 10, TaskUUID: &tasks[2]}).Unreadable)
	seen, f := 0, store.ApprovalFilter{Limit: 1}
	for next := true; next; {
		found := page(f)
		seen += len(found.Approvals)
		if next = found.Next != nil; next {
			f.After = *found.Next
		}
	}
	require.Equal(t, len(tasks)-1, seen, "page by page, of which one is empty")

	for _, oldest := range []bool{false, true} {
		letters, unreadable, err := reader.DeadLetters(t.Context(), store.DeadLetterFilter{Limit: 10, OldestFirst: oldest})
		require.NoError(t, err)
		require.Equal(t, []uuid.UUID{uuid.MustParse(entry)}, unreadable)
		require.Equal(t, len(tasks)-1, len(letters)) //nolint:testifylint // their texts are long
		require.True(t, slices.IsSortedFunc(letters, func(a, b store.DeadLetter) int {
			if oldest {
				return a.At.Compare(b.At)
			}
			return b.At.Compare(a.At)
		}))
	}
	for _, row := range []string{tasks[2].String(), "dead letter " + entry} {
		require.Contains(t, told, row)
	}
	repair() // the records are checked at the end
}
