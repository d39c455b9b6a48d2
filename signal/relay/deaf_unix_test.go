//go:build unix

package relay_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/relay"
)

// TestDeafLeaderGivesUp: a stream that is open and delivers nothing is found
// out by probes, and read anew.
func TestDeafLeaderGivesUp(t *testing.T) {
	t.Parallel()
	f := newFleetOn(t, pgtest.Private(t, nil).New(t)) // its processes are ours to freeze
	r, _ := f.candidate(func(c *relay.Config) { c.DeafAfter = 500 * time.Millisecond })
	f.receiveAll(takeOver()...)
	f.leader(nil, r)
	pid := f.db.QueryInt(t, `select active_pid from pg_replication_slots where database = current_database()`)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // the server could not stop otherwise
	f.emit(signalOf(signal.WorkerTopic("a"), "lost"))
	f.receiveAll(takeOver()...)
	pgtest.Eventually(t, patience, func() (bool, string) { return r.Health().Elections == 2, "not elected again" })
	f.emit(signalOf(signal.WorkerTopic("a"), "heard again"))
	f.receiveAll(signalOf(signal.WorkerTopic("a"), "heard again"))
}
