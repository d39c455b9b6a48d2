package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/redistest"
	"github.com/tasker-go/tasker/test/fleet"
)

// move is a fleet on its way from one event source to another.
type move struct {
	*rollout
	mode    string
	daemons [4]*fleet.Process // two orchestrators, two workers
	found   map[string]float64
}

// roll replaces all daemons, one after the other, by ones with other sources; the first time
// it starts them. In the middle all orchestrators have other sources than all workers.
func (m *move) roll(source, from string) {
	m.t.Helper()
	m.config = fmt.Sprintf("[common.signals]\nevent_source = %q\nmoving_from = %q\n", source, from)
	for i, kind := range []fleet.Kind{fleet.Orchestrator, fleet.Orchestrator, fleet.Worker, fleet.Worker} {
		former := m.daemons[i]
		if former != nil {
			m.count(former)
		}
		if former != nil && i == 2 {
			m.more()
		}
		m.daemons[i] = m.replace(kind, m.mode, former)
	}
}

// more lets the fleet as it is create and run tasks.
func (m *move) more() {
	m.t.Helper()
	until := m.created.Load() + 100
	pgtest.Eventually(m.t, time.Minute, func() (bool, string) { return m.created.Load() > until, "tasks are created" })
}

// works checks what the daemons tell of their sources, and that each finds work by signals.
func (m *move) works(source, from string) {
	m.t.Helper()
	fleet, err := client.New(client.Config{BaseURL: m.daemons[0].URL}).Fleet(m.t.Context())
	require.NoError(m.t, err)
	live := 0
	for _, d := range fleet.Replicas {
		if d.Live {
			live++
			require.Equal(m.t, [2]string{source, from}, [2]string{d.EventSource, d.MovingFrom}, d.ID)
		}
	}
	require.Equal(m.t, len(m.daemons), live)
	m.more()
	for _, p := range m.daemons {
		metrics := get(m.t, p.URL+"/metrics")
		require.Positive(m.t, sum(m.t, metrics, "tasker_found_total{", `by="listener"`), p.Name)
		require.InDelta(m.t, 1, sum(m.t, metrics, "tasker_event_source{", fmt.Sprintf(`role="used",source=%q`, source)), 0, p.Name)
		require.Equal(m.t, from != "", sum(m.t, metrics, "tasker_event_source{", fmt.Sprintf(`role="moved_from",source=%q`, from)) == 1, p.Name)
	}
}

// count adds what a daemon has found.
func (m *move) count(p *fleet.Process) {
	m.t.Helper()
	metrics := get(m.t, p.URL+"/metrics")
	for _, by := range []string{"listener", "poller", "timer", "catch_up"} {
		m.found[by] += sum(m.t, metrics, "tasker_found_total{", fmt.Sprintf("by=%q", by))
	}
}

// paused is the longest time between two claims since a moment.
func (m *move) paused(since string) time.Duration {
	m.t.Helper()
	return time.Duration(m.db.QueryInt(m.t, `select coalesce(extract(epoch from max(pause)) * 1000000, 0)::bigint::int from (
		select claimed_at - lag(claimed_at) over (order by claimed_at) as pause from tasker.step_attempts where claimed_at > $1::timestamptz) p`, since)) * time.Microsecond
}

// TestMovingToAnotherSource moves a loaded fleet from one event source to another and back, by
// restarting its daemons one after the other, twice each way. No request fails, work goes on
// being claimed, and none is lost or done twice. Where nothing polls, signals find it.
func TestMovingToAnotherSource(t *testing.T) {
	moves := []struct{ mode, from, to string }{{"EventDrivenOnly", "notify", "amqp"}}
	if pgtest.FullSize() {
		moves = moves[:0]
		sources := []string{"notify", "wal", "relay", "amqp", "redis"}
		for i, from := range sources {
			for _, to := range sources[i+1:] {
				for _, mode := range []string{"EventDrivenOnly", "Hybrid"} {
					moves = append(moves, struct{ mode, from, to string }{mode, from, to})
				}
			}
		}
	}
	for _, c := range moves {
		t.Run(c.mode+" "+c.from+" "+c.to, func(t *testing.T) { moveAndBack(t, c.mode, c.from, c.to) })
	}
}

func moveAndBack(t *testing.T, mode, from, to string) {
	r := newFleet(t, enginetest.Migrated(t))
	host := brokertest.New(t)
	r.env = []string{"RABBITMQ_URL=" + host.URL}
	if from == "redis" || to == "redis" {
		r.env = append(r.env, "REDIS_URL="+redistest.Start(t).URL)
	}
	m := &move{rollout: &rollout{running: r, bin: binDir, ready: map[*fleet.Process]*client.Client{}}, mode: mode, found: map[string]float64{}}
	m.roll(from, "")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg conc.WaitGroup
	for i := range 4 {
		wg.Go(func() { m.load(ctx, 100_000*i) })
	}
	m.works(from, "")
	began := m.db.QueryString(t, `select clock_timestamp()::text`)
	for _, stage := range [][2]string{{to, from}, {to, ""}, {from, to}, {from, ""}} {
		at := m.db.QueryString(t, `select clock_timestamp()::text`)
		m.roll(stage[0], stage[1])
		m.works(stage[0], stage[1])
		t.Logf("to %s from %q: longest time between two claims %v", stage[0], stage[1], m.paused(at))
		if to == "amqp" { // a connection to send over, and one to receive
			want := 8
			if stage[0] != to && stage[1] != to {
				want = 0
			}
			pgtest.Eventually(t, time.Minute, func() (bool, string) {
				n := len(host.Connections(t))
				return n == want, fmt.Sprintf("%d connections to the broker in stage %v, want %d", n, stage, want)
			})
		}
	}
	paused := m.paused(began)
	stop()
	wg.Wait()
	require.Empty(t, m.failures, "of %d tasks", m.created.Load())
	for _, p := range m.daemons {
		m.count(p)
	}
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		return m.db.QueryInt(t, `select count(*) from tasker.board`) == 0, "tasks are alive"
	})
	created := int(m.created.Load())
	require.Equal(t, created, m.db.QueryInt(t, `select count(distinct task_uuid) from tasker.step_attempts where task_state is not null`), "none is lost")
	require.Zero(t, m.db.QueryInt(t, `select count(*) from tasker.step_attempts where attempt > 1 or outcome = 4`), "none runs twice")
	if mode == "EventDrivenOnly" { // what is not found by signals is due, or found by a look that a signal has asked for
		require.Zero(t, m.found["poller"])
		require.Greater(t, m.found["listener"], 100*m.found["catch_up"], "%v", m.found)
		require.Greater(t, m.found["listener"], 3*m.found["timer"], "%v", m.found)
	}
	t.Logf("%d tasks, 0 failed requests, longest time between two claims %v, found by %v", created, paused, m.found)
	longest := 3 * time.Second // of a busy machine; a fleet that has lost signals waits for heartbeats
	if measuring() || pgtest.FullSize() {
		longest = time.Second
	}
	require.LessOrEqual(t, paused, longest)
	m.clean()
}
