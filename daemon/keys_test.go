package daemon

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/worker"
)

// Keys that are no option of a part: running daemons show their effect.
func TestDaemonsFollowTheirSettings(t *testing.T) {
	t.Parallel()
	db, dir := enginetest.Migrated(t), t.TempDir()
	for name, file := range map[string]string{"found": "searched.yaml", "brought": "brought.yaml"} {
		text := "name: " + name + "\nnamespace_name: keys\nversion: 1.0.0\nsteps:\n  - name: only\n    handler:\n      callable: keys.only\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	loaded := loadToo(t, db, `
[common.task_templates]
search_paths = ["`+dir+`/searched.yaml"]
[orchestration.events]
max_consumers = 1
max_streams = 1
`)
	loaded.Worker.WorkerType, loaded.Worker.TemplatePath = "special", filepath.Join(dir, "brought.yaml")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, err := newOrchestrator(ctx, loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(ctx))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	w, err := newWorker(ctx, loaded, func(w *worker.Worker) error {
		return w.Register("keys.only", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return struct{}{}, nil }))
	}, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(ctx))
	defer func() { require.NoError(t, w.Stop(context.Background())) }()
	api := client.New(client.Config{BaseURL: "http://" + o.Addr().String()})

	for _, name := range []string{"found", "brought"} { // search_paths, template_path
		_, err := api.Template(ctx, "keys", name, "1.0.0")
		require.NoError(t, err, name)
	}
	_, err = api.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "first", Namespace: "keys"})
	require.NoError(t, err)
	_, err = api.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "second", Namespace: "keys"})
	require.ErrorContains(t, err, "limit of event consumers is reached", "max_consumers")

	stream := func() *http.Response { // max_streams
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Addr().String()+"/v1/events/stream", nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		return res
	}
	one, two := stream(), stream()
	require.Equal(t, []int{http.StatusOK, http.StatusServiceUnavailable}, []int{one.StatusCode, two.StatusCode})
	require.NoError(t, one.Body.Close())
	require.NoError(t, two.Body.Close())

	_, body := ask(t, "http://"+w.Addr().String()+"/health/detailed")
	require.Contains(t, body, `"worker_type":"special"`)
}

// A daemon that may not migrate leaves an empty database unchanged and ends.
func TestMigrateOnStart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := newOrchestrator(t.Context(), loadToo(t, db, "[common.database]\nmigrate_on_start = false\n"), nil, zap.NewNop())
	require.ErrorContains(t, err, "schema")
	o, err := newOrchestrator(t.Context(), loadToo(t, db, "[common.database]\nmigrate_on_start = true\n"), nil, zap.NewNop())
	require.NoError(t, err)
	o.store.Close()
}

func TestAnAPIThatIsOff(t *testing.T) {
	t.Parallel()
	loaded := loadFor(t, enginetest.Migrated(t))
	loaded.Orchestration.Web.Enabled, loaded.Worker.Web.Enabled = false, false
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	defer o.store.Close()
	w, err := newWorker(t.Context(), loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	require.NoError(t, err)
	defer w.store.Close()
	require.Nil(t, o.Addr())
	require.Nil(t, w.Addr())
}

func TestLogFormat(t *testing.T) {
	for format, want := range map[string]string{"console": "could not start", "json": `"message":"could not start"`} {
		_, stderr := mainWith(t, "[common.telemetry]\nlog_format = \""+format+"\"\n", "DATABASE_URL", "postgresql://nowhere/tasker")
		require.Contains(t, stderr, want)
		require.Equal(t, format == "json", stderr[0] == '{')
	}
}
