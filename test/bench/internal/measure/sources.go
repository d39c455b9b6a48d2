package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
	"github.com/tasker-go/tasker/test/fleet"
)

const (
	// sourceRate is a load, in tasks per second, that a fleet can take with any source.
	sourceRate, sourceClients = 500, 16
	// outageTasks are created while a source is away, one every outageGap.
	outageTasks = 20
	outageGap   = 250 * time.Millisecond
	// outagePatience bounds the time until signals are used again.
	outagePatience = 2 * time.Minute
)

// sourceRun is what a source has done in all rounds, and its fleet in the present one.
type sourceRun struct {
	*Bench
	*ours
	daemons     []*fleet.Process
	source, key string
	carrier     *rig.Carrier // nil where PostgreSQL carries the signals

	carried                   signalTimes
	alone, together           []time.Duration // from the request to the claim
	signalled, polled, missed float64
	creating                  time.Duration
	idle, loaded              expenses
}

// expenses are what was used so far, or in a time.
type expenses struct {
	lasting                   time.Duration
	statements                float64
	postgres, daemons, broker time.Duration
}

// sources measures fleets that differ in their event source only. They take turns, so that
// what other programs do meets all of them.
func (b *Bench) sources(ctx context.Context) error {
	server, err := b.Rig.Observed(ctx)
	if err != nil {
		return err
	}
	outages := &report.Table{Title: "Event sources: what a killed source costs", Columns: []string{"source", "killed", "request to claim p50 ms", "max ms", "signals used again after s"},
		Notes: []string{fmt.Sprintf("%d tasks, one every %v, from the kill on. The brokers are then started again; of PostgreSQL only the sessions of listeners and relays are killed. "+
			"Used again: until no daemon polls in place of its listener, after the broker answers or the sessions were killed; seen every tenth of a second.", outageTasks, outageGap)}}
	var runs []*sourceRun
	for _, source := range []string{"notify", "wal", "relay", "amqp", "redis"} {
		runs = append(runs, &sourceRun{Bench: b, source: source, key: "sources." + source + "."})
	}
	for round := range b.Sizes.SourceRounds {
		for _, m := range runs {
			if round == b.Sizes.SourceRounds-1 {
				err = m.round(ctx, server, outages)
			} else {
				err = m.round(ctx, server, nil)
			}
			if err != nil {
				return fmt.Errorf("event source %s: %w", m.source, err)
			}
		}
	}
	b.recordSources(runs)
	b.Report.Tables = append(b.Report.Tables, outages)
	return nil
}

// round measures on a new fleet; in the last round, with a table, the source is killed.
func (m *sourceRun) round(ctx context.Context, server *rig.Cluster, outages *report.Table) (err error) {
	if m.carrier, err = m.Rig.Carrier(ctx, m.source); err != nil {
		return err
	}
	config := ""
	if m.carrier != nil {
		config = m.carrier.Config
		defer func() { err = errors.Join(err, m.carrier.Close()) }()
	}
	if err := m.signals(ctx, m.source, m.carrier, &m.carried); err != nil {
		return fmt.Errorf("signals: %w", err)
	}
	m.ours, err = m.fleet(ctx, server, rig.FleetOptions{Mode: "Hybrid", Source: m.source, WorkerConfig: config, OrchestratorConfig: config}, load.Plain, 1, 1)
	if err != nil {
		return err
	}
	defer m.ours.Close()
	m.daemons = slices.Concat(m.Orchestrators, m.Workers)
	if err := m.work(ctx); err != nil || outages == nil {
		return err
	}
	return m.outage(ctx, outages)
}

// work measures idle and under load.
func (m *sourceRun) work(ctx context.Context) error {
	before, err := proven(ctx, m.daemons)
	if err != nil {
		return err
	}
	r := &latencyRun{b: m.Bench, api: m.server(), board: m.board}
	alone, err := r.tasks(ctx, m.board, load.OneStep, 4*m.Sizes.Latency, warmTasks)
	if err != nil {
		return err
	}
	if err := wait(ctx, settling); err != nil {
		return err
	}
	err = m.spend(ctx, &m.idle, func() error { return wait(ctx, m.Sizes.Idle) })
	if err != nil {
		return err
	}
	var together []string
	err = m.spend(ctx, &m.loaded, func() error {
		begin := time.Now()
		if together, err = m.creator.Paced(ctx, sourceClients, sourceRate, m.Sizes.Steady); err != nil {
			return err
		}
		m.creating += time.Since(begin)
		return m.drained(ctx)
	})
	if err != nil {
		return err
	}
	after, err := rig.Scrape(ctx, m.daemons)
	if err != nil {
		return err
	}
	since := func(name string, labels ...string) float64 {
		return after.Sum(name, labels...) - before.Sum(name, labels...)
	}
	m.signalled += since("tasker_found_total", `by="listener"`)
	m.polled += since("tasker_found_total", `by="poller"`)
	m.missed += since("tasker_missed_total")
	for _, of := range []struct {
		ids   []string
		times *[]time.Duration
	}{{alone, &m.alone}, {together, &m.together}} {
		claimed, _, err := m.board.Times(ctx, of.ids)
		if err != nil {
			return err
		}
		*of.times = append(*of.times, claimed...)
		m.logf("%s: %d claims, p50 %v", m.source, len(claimed), stats.Summarize(claimed).P50)
	}
	return nil
}

// spend adds what is used during f.
func (m *sourceRun) spend(ctx context.Context, sum *expenses, f func() error) error {
	before, err := m.spent(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := f(); err != nil {
		return err
	}
	sum.lasting += time.Since(begin)
	after, err := m.spent(ctx)
	if err != nil {
		return err
	}
	sum.statements += after.statements - before.statements
	sum.postgres += after.postgres - before.postgres
	sum.daemons += after.daemons - before.daemons
	sum.broker += after.broker - before.broker
	return nil
}

func (m *sourceRun) spent(ctx context.Context) (s expenses, err error) {
	db, err := m.Connect(ctx)
	if err != nil {
		return s, err
	}
	defer rig.CloseConn(db)
	var c counters
	if err := c.read(ctx, db); err != nil {
		return s, err
	}
	if m.carrier != nil {
		if s.broker, err = rig.CPU(m.carrier.PID()); err != nil {
			return s, err
		}
	}
	u, err := m.usage(ctx)
	s.statements, s.postgres, s.daemons = c.statements, u.postgres, u.orchestrator+u.worker
	return s, err
}

// recordSources makes the tables of all rounds, with a row per source each.
func (b *Bench) recordSources(runs []*sourceRun) {
	times := b.Report.Table("Event sources: one-step tasks in Hybrid, from the request to the claim, in ms", "source", "idle p50", "p99",
		fmt.Sprintf("at %d tasks/s p50", sourceRate), "p99", "tasks/s", "found by signals %", "found by polls", "missed")
	times.Notes = []string{fmt.Sprintf("%d rounds. Idle: %d tasks one after the other. Load: single requests of %d clients for %v; tasks/s is what they created.",
		b.Sizes.SourceRounds, 4*b.Sizes.Latency, sourceClients, b.Sizes.Steady),
		"Found: tasker_found_total by listener, of listener and poller, over both. Missed: tasker_missed_total."}
	cost := b.Report.Table("Event sources: what they cost", "source", "statements/s idle", "PostgreSQL CPU % idle", "statements per task", "PostgreSQL CPU µs per task",
		"daemons CPU µs per task", "broker CPU µs per task", "broker CPU % idle")
	cost.Notes = []string{fmt.Sprintf("On a server with pg_stat_statements. Idle: %v with nothing to do. Per task: under the load above, creation included. "+
		"Slower fleets find more tasks at once and need fewer statements for each.", b.Sizes.Idle)}
	carried := b.Report.Table(fmt.Sprintf("Event sources: %d different signals through the transport alone", signalCount), "source", "signals/s", "one signal p50 ms", "p99 ms")
	carried.Notes = []string{fmt.Sprintf("Sender and receiver in one process, without daemons: calls of %d signals, one after the other, until the last signal has come; the median of %d times. "+
		"Buffers and queues are long enough for all. One signal: from its sending to its arrival, %d one after the other.", signalBatch, signalRounds*b.Sizes.SourceRounds, signalSingles*b.Sizes.SourceRounds)}
	for _, m := range runs {
		alone, together, single := stats.Summarize(m.alone), stats.Summarize(m.together), stats.Summarize(m.carried.single)
		tasks, share := float64(len(m.together)), 100*m.signalled/(m.signalled+m.polled)
		b.Report.SetSummary(m.key+"idle", alone)
		b.Report.SetSummary(m.key+"load", together)
		b.Report.SetSummary(m.key+"signal", single)
		b.Report.Set(m.key+"found_percent", share)
		times.Add(m.source, ms(alone.P50), ms(alone.P99), ms(together.P50), ms(together.P99), num(tasks/m.creating.Seconds()), num(share), num(m.polled), num(m.missed))

		idle, perTask := m.idle.statements/m.idle.lasting.Seconds(), m.loaded.statements/tasks
		b.Report.Set(m.key+"idle_statements_rate", idle)
		b.Report.Set(m.key+"statements_per_task", perTask)
		micros := func(d time.Duration) string { return num(float64(d.Microseconds()) / tasks) }
		percent := func(d time.Duration) string { return num(100 * d.Seconds() / m.idle.lasting.Seconds()) }
		brokerLoad, brokerIdle := "–", "–"
		if m.carrier != nil {
			brokerLoad, brokerIdle = micros(m.loaded.broker), percent(m.idle.broker)
		}
		cost.Add(m.source, num(idle), percent(m.idle.postgres), num(perTask), micros(m.loaded.postgres), micros(m.loaded.daemons), brokerLoad, brokerIdle)

		slices.Sort(m.carried.rates)
		rate := m.carried.rates[len(m.carried.rates)/2]
		b.Report.Set(m.key+"signals_rate", rate)
		carried.Add(m.source, num(rate), ms(single.P50), ms(single.P99))
	}
}

// killSessions ends the sessions that carry signals, as the failure of a connection does.
const killSessions = `
select count(pg_terminate_backend(pid))::int from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and application_name ~ '-(listener|relay)'`

// kill ends the source and says what that was.
func (m *sourceRun) kill(ctx context.Context) (string, error) {
	if m.carrier != nil {
		return "the broker", m.carrier.Kill()
	}
	db, err := m.Connect(ctx)
	if err != nil {
		return "", err
	}
	defer rig.CloseConn(db)
	var n int
	if err := db.QueryRow(ctx, killSessions).Scan(&n); err != nil {
		return "", fmt.Errorf("kill the sessions that carry signals: %w", err)
	}
	if n == 0 {
		return "", errors.New("kill the sessions that carry signals: there are none")
	}
	return fmt.Sprintf("%d sessions", n), nil
}

// outage creates tasks while the source is away, and waits until it is used again.
func (m *sourceRun) outage(ctx context.Context, t *report.Table) error {
	ctx, cancel := context.WithTimeout(ctx, outagePatience)
	defer cancel()
	what, err := m.kill(ctx)
	if err != nil {
		return err
	}
	back := time.Now()
	type made struct {
		ids []string
		err error
	}
	created := make(chan made, 1)
	go func() {
		ids, err := m.creator.Paced(ctx, 1, 1/outageGap.Seconds(), outageTasks*outageGap)
		created <- made{ids, err}
	}()
	var tasks []string
	for used := back; ; {
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the listeners: %w", err)
		}
		now, err := rig.Scrape(ctx, m.daemons)
		if err != nil {
			return err
		}
		polling := now.Sum("tasker_polling_fallback_active") > 0
		if polling {
			used = time.Now()
		}
		select {
		case all := <-created:
			if all.err != nil {
				return all.err
			}
			tasks = all.ids
			if m.carrier == nil {
				break
			}
			if err := m.carrier.Restart(ctx); err != nil {
				return err
			}
			back = time.Now()
			used = back
			polling = true
		default:
		}
		if tasks != nil && !polling {
			return m.recovered(ctx, t, what, tasks, used.Sub(back))
		}
	}
}

// recovered adds the row of an outage.
func (m *sourceRun) recovered(ctx context.Context, t *report.Table, what string, tasks []string, after time.Duration) error {
	if err := m.drained(ctx); err != nil {
		return err
	}
	claimed, _, err := m.board.Times(ctx, tasks)
	if err != nil {
		return err
	}
	sum := stats.Summarize(claimed)
	m.Report.SetSummary(m.key+"outage", sum)
	m.Report.Set(m.key+"outage.recovery_s", after.Seconds())
	t.Add(m.source, what, ms(sum.P50), ms(sum.Max), sec(after))
	m.logf("%s: %s killed: claims p50 %v, max %v; signals used again after %v", m.source, what, sum.P50, sum.Max, after)
	return nil
}
