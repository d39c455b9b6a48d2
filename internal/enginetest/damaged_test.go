package enginetest_test

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
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
	damage(t, db)
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

// damage zeroes a page of the disk in the middle of the largest value of the tasks of today.
func damage(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `checkpoint`)
	const toast = `select c.reltoastrelid::regclass from pg_class c join pg_inherits i on i.inhrelid = c.oid
		where i.inhparent = 'tasker.tasks'::regclass order by pg_relation_size(c.reltoastrelid) desc limit 1`
	name := db.QueryString(t, `select (`+toast+`)::text`)
	path := db.QueryString(t, `select pg_relation_filepath((`+toast+`))`)
	block := db.QueryInt(t, `select (ctid::text::point)[0]::int + 1 from `+name+` where chunk_id = (
		select chunk_id from `+name+` group by chunk_id order by count(*) desc limit 1) order by chunk_seq offset 20 limit 1`)
	cluster := db.Server()
	require.NoError(t, cluster.Kill(t.Context())) // nothing behind the checkpoint restores the page
	file, err := os.OpenFile(filepath.Join(cluster.DataDir(), "pgdata", path), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(make([]byte, blockSize), int64(block)*blockSize)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	require.NoError(t, cluster.Restart(t.Context()))
}
