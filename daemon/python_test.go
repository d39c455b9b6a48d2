package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/needs"
)

// TestPythonStubs calls every rpc of both daemons from Python, with stubs made from the
// protos.
func TestPythonStubs(t *testing.T) {
	t.Parallel()
	stubs := filepath.Dir(needs.Path(t, needs.PythonStubs))
	p := newPair(t, "", func(l *config.Loaded) {
		l.Orchestration.Web.ConfigEndpoint, l.Worker.Web.ConfigEndpoint = true, true
	})
	failed := p.create("bad", 1).GetTaskUuid()
	p.end(failed)
	of := p.clients(p.orchestrator.Addr(), p.orchestrator.GRPCAddr(), false)
	_, err := of.rest.AddDLQEntry(p.ctx, client.DLQAdd{TaskUUID: failed, Reason: "look", Actor: "ana"})
	require.NoError(t, err)
	run := exec.CommandContext(p.ctx, filepath.Join(stubs, "../bin/python"), "testdata/every_rpc.py", // #nosec G204 -- our own
		p.orchestrator.GRPCAddr().String(), p.worker.GRPCAddr().String(), failed)
	run.Env = append(os.Environ(), "PYTHONPATH="+stubs, "PYTHONDONTWRITEBYTECODE=1")
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "10 services, 34 rpcs\n", string(out))
}
