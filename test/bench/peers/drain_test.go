package peers

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgcluster"
)

// BenchmarkRiverDrain is how the knobs of the tuned River were chosen: each
// setting drains a backlog on a server with stock settings. Compare medians of
// several runs, for the neighbours are close:
//
//	go test -run '^$' -bench RiverDrain -benchtime 1x -count 5 ./peers
func BenchmarkRiverDrain(b *testing.B) {
	cluster, err := pgcluster.Start(b.Context(), pgcluster.Options{Ephemeral: true})
	require.NoError(b, err)
	defer func() { require.NoError(b, cluster.Stop(b.Context())) }()
	admin, err := pgx.Connect(b.Context(), cluster.SocketDSN(pgcluster.Superuser))
	require.NoError(b, err)
	defer func() { require.NoError(b, admin.Close(b.Context())) }()
	for _, s := range drainSettings() {
		b.Run(s.label, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, cluster.CreateDatabase(b.Context(), "drain"))
				drain(b, s, cluster.DSN("drain"))
				// Vacuuming and writing out the data of one run must not slow the next.
				for _, sql := range []string{"drop database drain with (force)", "checkpoint"} {
					_, err := admin.Exec(b.Context(), sql)
					require.NoError(b, err)
				}
			}
		})
	}
}

type drainSetting struct {
	label string
	knobs riverKnobs
	jobs  int
	// before the run; may be empty.
	sql string
}

// drainSettings are the defaults, the tuned knobs and those near them.
func drainSettings() []drainSetting {
	const backlog = 100_000
	settings := []drainSetting{
		{label: "defaults", knobs: defaultRiver(), jobs: 5000},
		{label: "tuned", knobs: tunedRiver(), jobs: backlog},
		// Not for the tuned one: River's own interface needs them to list jobs.
		{label: "without-search-indexes", knobs: tunedRiver(), jobs: backlog,
			sql: "drop index river_job_args_index, river_job_metadata_index"},
	}
	vary := func(label string, change func(*riverKnobs)) {
		k := tunedRiver()
		change(&k)
		settings = append(settings, drainSetting{label: label, knobs: k, jobs: backlog})
	}
	for _, n := range []int{500, 1000, 2000, 5000, 10_000} {
		vary(fmt.Sprintf("MaxWorkers=%d", n), func(k *riverKnobs) { k.maxWorkers = n })
	}
	for _, n := range []int32{2, 4, 20} {
		vary(fmt.Sprintf("pool=%d", n), func(k *riverKnobs) { k.conns = n })
	}
	for _, n := range []int{1, 3} {
		vary(fmt.Sprintf("clients=%d", n), func(k *riverKnobs) { k.clients = n })
	}
	for _, d := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond} {
		vary("FetchCooldown="+d.String(), func(k *riverKnobs) { k.cooldown = d })
	}
	vary("all-services", func(k *riverKnobs) { k.lean = false })
	return settings
}

// drain reports the rates at which a backlog is created and processed.
func drain(b *testing.B, s drainSetting, dsn string) {
	b.Helper()
	r := newRiver(s.label, s.knobs)
	require.NoError(b, r.Prepare(b.Context(), dsn))
	db, err := pgx.Connect(b.Context(), dsn)
	require.NoError(b, err)
	defer func() { require.NoError(b, db.Close(b.Context())) }()
	_, err = db.Exec(b.Context(), s.sql)
	require.NoError(b, err)
	begin := time.Now()
	require.NoError(b, r.Submit(b.Context(), dsn, s.jobs))
	b.ReportMetric(float64(s.jobs)/time.Since(begin).Seconds(), "submitted/s")

	stop := work(b, r, dsn)
	awaitFinished(b, r, db, int64(s.jobs), 250*time.Millisecond)
	stop()
	took, err := r.Took(b.Context(), db)
	require.NoError(b, err)
	b.ReportMetric(float64(s.jobs)/took.Seconds(), "jobs/s")
}
