//go:build unix

package relay_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/relay"
	"github.com/tasker-go/tasker/signal"
)

// TestDeafLeaderGivesUp: probes detect a stream that is open and delivers nothing, and
// the leader reads it anew.
func TestDeafLeaderGivesUp(t *testing.T) {
	t.Parallel()
	f := newFleetOn(t, pgtest.Private(t, nil).New(t)) // a private server, because the test freezes a process
	r, _ := f.candidate(func(c *relay.Config) { c.DeafAfter = 500 * time.Millisecond })
	f.receiveAll(takeOver()...)
	f.leader(nil, r)
	pid := f.db.QueryInt(t, `select active_pid from pg_replication_slots where database = current_database()`)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // otherwise the server could not stop
	f.emit(signalOf(signal.WorkerTopic("a"), "lost"))
	f.receiveAll(takeOver()...)
	pgtest.Eventually(t, patience, func() (bool, string) { return r.Health().Elections == 2, "not elected again" })
	f.emit(signalOf(signal.WorkerTopic("a"), "received again"))
	f.receiveAll(signalOf(signal.WorkerTopic("a"), "received again"))
}
