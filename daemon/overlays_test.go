package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/loopback"
	"github.com/tasker-go/tasker/worker"
)

// Both daemons start with each environment of ours, and with the files of Tasker as they are,
// on the loopback: in none of them has a user chosen an address.
func TestEveryOverlayStarts(t *testing.T) {
	t.Parallel()
	roots := map[string]string{"ours": ""}
	if corpus := corpusRoot(t); corpus != "" {
		roots["the corpus"] = corpus
	}
	for name, root := range roots {
		for _, environment := range []string{"development", "test", "production"} {
			t.Run(name+" "+environment, func(t *testing.T) {
				t.Parallel()
				startsWith(t, config.Options{Root: root, Environment: environment, WorkerID: "w"})
			})
		}
	}
}

// corpusRoot has the files of Tasker as a root of layers; "" without them.
func corpusRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "base"), 0o750))
	for _, role := range config.ContextComplete.Roots() {
		text, err := os.ReadFile(filepath.Join("..", "..", "shared", "corpus", "config", role+".toml"))
		if errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, "base", role+".toml"), text, 0o600))
	}
	return root
}

func startsWith(t *testing.T, options config.Options) {
	t.Helper()
	db := enginetest.Migrated(t)
	options.LookupEnv = func(name string) (string, bool) {
		value, set := map[string]string{"DATABASE_URL": db.DSN, "WORKER_NAMESPACES": "shop"}[name]
		return value, set
	}
	loaded, err := config.Load(options)
	require.NoError(t, err)
	require.NoError(t, loaded.Refused())
	for _, address := range []*string{&loaded.Orchestration.Web.BindAddress, &loaded.Worker.Web.BindAddress,
		&loaded.Orchestration.GRPC.BindAddress, &loaded.Worker.GRPC.BindAddress} {
		require.True(t, loopback.Only(*address), *address)
		*address = "127.0.0.1:0" // tests run beside each other
	}
	loaded.Common.Database.Pool.MinConnections, loaded.Common.Database.Pool.MaxConnections = 0, 8
	ctx, _ := startedOrchestrator(t, loaded)
	w, err := newWorker(ctx, loaded, func(*worker.Worker) error { return nil }, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, w.Start(ctx))
	require.NoError(t, w.Stop(context.Background()))
}
