package measure

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

const (
	// streamTasks follow a task each, streamNamespaces a namespace in which little
	// happens, streamAll the fleet.
	streamTasks, streamNamespaces, streamAll = 800, 100, 100
	// streamRead is how many of those that follow the fleet read what they receive, for
	// its delay; the others only take it.
	streamRead = 10
	// streamLight is a load, in tasks per second, that all clients can follow.
	streamLight = 100
	// streamMemory is by how much, in MB, a client that reads nothing may make the
	// orchestrator grow.
	streamMemory = 64
)

// idleNamespace has tasks that no worker runs.
const idleNamespace = "bench_waiting"

// streams measures 1,000 clients that follow transitions, with a light load and with half
// of what the fleet can do, and one that never reads.
func (b *Bench) streams(ctx context.Context) error {
	capacity, err := b.sustainedPlain(ctx)
	if err != nil {
		return err
	}
	server, err := b.Rig.Observed(ctx)
	if err != nil {
		return err
	}
	t := b.Report.Table(fmt.Sprintf("1,000 clients of GET /v1/transitions/stream: %d of a task each, %d of a quiet namespace, %d of all tasks", streamTasks, streamNamespaces, streamAll),
		"load, tasks/s", "clients", "ended tasks/s", "statements/s", "orchestrator MB", "its CPU %", "PostgreSQL CPU %", "transitions sent/s", "delay p50 ms", "p99", "cut off as slow")
	t.Notes = []string{"Delay: from the time of a transition, by the database, to its arrival at clients that follow all tasks; the rest of the load, and the clients, are on the same machine.",
		fmt.Sprintf("Capacity was %s tasks/s with creation going on, no clients.", num(capacity))}
	for _, l := range []struct {
		key  string
		rate float64
	}{{"light", streamLight}, {"half", capacity / 2}} {
		if err := b.streamsAt(ctx, server, t, l.key, l.rate); err != nil {
			return fmt.Errorf("streams at %s tasks/s: %w", num(l.rate), err)
		}
	}
	return b.neverReads(ctx, server)
}

// streamed is what a phase has used.
type streamed struct {
	rate, statements, mb, orchestrator, postgres, sent, slow float64
}

// streamFleet is a fleet that 1,000 clients may follow.
func (b *Bench) streamFleet(ctx context.Context, server *rig.Cluster) (*ours, error) {
	return b.fleet(ctx, server, rig.FleetOptions{OrchestratorConfig: "[orchestration.events]\nmax_streams = 2000\n"}, load.Plain, 1, 1)
}

func (b *Bench) streamsAt(ctx context.Context, server *rig.Cluster, t *report.Table, key string, rate float64) error {
	s, err := b.streamFleet(ctx, server)
	if err != nil {
		return err
	}
	defer s.Close()
	without, err := b.phase(ctx, s, rate)
	if err != nil {
		return err
	}
	f, err := b.follow(ctx, s)
	if err != nil {
		return err
	}
	defer f.close()
	with, err := b.phase(ctx, s, rate)
	if err != nil {
		return err
	}
	delay := stats.Summarize(f.taken())
	b.Report.SetSummary("streams."+key+".delay", delay)
	b.Report.Set("streams."+key+".statements_rate", with.statements-without.statements)
	b.Report.Set("streams."+key+".orchestrator_mb", with.mb-without.mb)
	b.Report.Set("streams."+key+".slow", with.slow)
	add := func(clients int, p streamed, cells ...any) {
		t.Add(append([]any{num(rate), clients, num(p.rate), num(p.statements), num(p.mb), num(p.orchestrator), num(p.postgres)}, cells...)...)
	}
	add(0, without, "–", "–", "–", "–")
	add(streamTasks+streamNamespaces+streamAll, with, num(with.sent), ms(delay.P50), ms(delay.P99), num(with.slow))
	return nil
}

// phase runs a load for a while.
func (b *Bench) phase(ctx context.Context, s *ours, rate float64) (p streamed, err error) {
	feed := load.Feed{Rate: func(time.Duration) float64 { return rate }}
	if _, err = load.Keep(ctx, s, feed, warmUp); err != nil {
		return p, err
	}
	db, err := s.Connect(ctx)
	if err != nil {
		return p, err
	}
	defer rig.CloseConn(db)
	read := func() (c counters, u usage, m rig.Metrics, err error) {
		err = c.read(ctx, db)
		if err == nil {
			u, err = s.usage(ctx)
		}
		if err == nil {
			m, err = rig.Scrape(ctx, s.Orchestrators)
		}
		return c, u, m, err
	}
	c, u, m, err := read()
	if err != nil {
		return p, err
	}
	begin := time.Now()
	samples, err := load.Keep(ctx, s, feed, b.Sizes.Steady)
	if err != nil {
		return p, err
	}
	c2, u2, m2, err := read()
	took := time.Since(begin).Seconds()
	if err != nil {
		return p, err
	}
	p = streamed{rate: stats.Rate(samples, 0, b.Sizes.Steady), statements: (c2.statements - c.statements) / took,
		orchestrator: 100 * (u2.orchestrator - u.orchestrator).Seconds() / took, postgres: 100 * (u2.postgres - u.postgres).Seconds() / took,
		sent: (m2.Sum(sentMetric) - m.Sum(sentMetric)) / took, slow: m2.Sum(endedMetric, `reason="slow"`)}
	p.mb, err = rig.ResidentMB(s.Orchestrators[0].PID())
	return p, err
}

const (
	sentMetric  = "tasker_transitions_sent_total"
	endedMetric = "tasker_event_streams_ended_total"
)

// followers are open streams.
type followers struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu     sync.Mutex
	delays []time.Duration
}

// taken returns the delays since it was last called.
func (f *followers) taken() (list []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list, f.delays = f.delays, nil
	return list
}

func (f *followers) close() {
	f.stop()
	f.done.Wait()
}

// follow opens the streams; they stay open until close. A stream that the server has cut
// off is opened again.
func (b *Bench) follow(ctx context.Context, s *ours) (*followers, error) {
	idle, ids, err := s.waitingTasks(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	f := &followers{stop: stop}
	open := make(chan error, streamTasks+streamNamespaces+streamAll)
	h := &http.Client{Transport: &http.Transport{MaxIdleConns: 1}}
	one := func(query url.Values, read bool) {
		f.done.Go(func() {
			first := true
			for ctx.Err() == nil {
				err := f.stream(ctx, h, s.server(), query, read, func() {
					if first {
						open <- nil
					}
					first = false
				})
				if first && ctx.Err() == nil {
					open <- err
					return
				}
			}
		})
	}
	for _, id := range ids {
		one(url.Values{"task_uuid": {id}}, false)
	}
	for range streamNamespaces {
		one(url.Values{"namespace": {idle}}, false)
	}
	for i := range streamAll {
		one(nil, i < streamRead)
	}
	for range cap(open) {
		select {
		case err = <-open:
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			f.close()
			return nil, fmt.Errorf("open a stream: %w", err)
		}
	}
	f.taken()
	return f, nil
}

// waitingTasks creates the tasks that are followed one by one: none of them ever runs.
func (s *ours) waitingTasks(ctx context.Context) (namespace string, ids []string, err error) {
	waiting := load.OneStep
	waiting.Namespace = idleNamespace
	if err := s.board.Register(ctx, []string{idleNamespace}); err != nil {
		return "", nil, err
	}
	creator := load.NewCreator(s.server(), []load.Workflow{waiting})
	wire, err := load.Dial(ctx, s.server())
	if err != nil {
		return "", nil, err
	}
	defer wire.Close()
	for range streamTasks {
		id, err := creator.One(wire)
		if err != nil {
			return "", nil, err
		}
		ids = append(ids, id)
	}
	return idleNamespace, ids, nil
}

// stream reads one stream to its end; opened is called after its first event.
func (f *followers) stream(ctx context.Context, h *http.Client, server load.Server, query url.Values, read bool, opened func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/transitions/stream?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	if name, value, ok := bytes.Cut([]byte(server.Header), []byte(": ")); ok {
		req.Header.Set(string(name), string(value))
	}
	res, err := h.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	in := bufio.NewReaderSize(res.Body, 4<<10)
	for {
		line, err := in.ReadSlice('\n')
		if bytes.HasPrefix(line, []byte("event: open")) {
			opened()
			if !read {
				_, err = io.Copy(io.Discard, in)
			}
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		f.note(line)
	}
}

// note records the delay of a transition.
func (f *followers) note(line []byte) {
	now := time.Now()
	_, rest, ok := bytes.Cut(line, []byte(`"at":"`))
	if !ok {
		return
	}
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	at, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delays = append(f.delays, now.Sub(at))
}

// neverReads opens a stream of all tasks whose client never reads, beside one that does.
func (b *Bench) neverReads(ctx context.Context, server *rig.Cluster) error {
	const rate = 1000
	s, err := b.streamFleet(ctx, server)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	good := &followers{stop: stop}
	good.done.Go(func() { _ = good.stream(ctx, http.DefaultClient, s.server(), nil, true, func() {}) })
	defer good.close()
	before, err := b.phase(ctx, s, rate)
	if err != nil {
		return err
	}
	alone := stats.Summarize(good.taken())
	deaf, err := load.Dial(ctx, s.server())
	if err != nil {
		return err
	}
	defer deaf.Close()
	if err := deaf.ReceiveLittle(); err != nil {
		return err
	}
	if err := deaf.Send("GET ", "/v1/transitions/stream", nil); err != nil {
		return err
	}
	begin, slow, most := time.Now(), 0.0, before.mb
	for slow == 0 && time.Since(begin) < time.Minute {
		if _, err := load.Keep(ctx, s, load.Feed{Rate: func(time.Duration) float64 { return rate }}, 500*time.Millisecond); err != nil {
			return err
		}
		m, err := rig.Scrape(ctx, s.Orchestrators)
		if err != nil {
			return err
		}
		mb, err := rig.ResidentMB(s.Orchestrators[0].PID())
		if err != nil {
			return err
		}
		slow, most = m.Sum(endedMetric, `reason="slow"`), max(most, mb)
	}
	took, beside := time.Since(begin), stats.Summarize(good.taken())
	t := b.Report.Table(fmt.Sprintf("A client that never reads, at %d tasks/s", rate), "cut off after s", "orchestrator MB before", "at most", "delay of another client p50 ms", "p99", "before p50 ms", "p99")
	t.Add(sec(took), num(before.mb), num(most), ms(beside.P50), ms(beside.P99), ms(alone.P50), ms(alone.P99))
	b.Report.Set("streams.unread.mb", most-before.mb)
	b.Report.Set("streams.unread.cut_s", took.Seconds())
	switch {
	case slow != 1:
		return fmt.Errorf("streams cut off as slow: %v, want the one that never reads", slow)
	case most-before.mb > streamMemory:
		return fmt.Errorf("the orchestrator grew by %s MB over a client that never reads: want at most %d", num(most-before.mb), streamMemory)
	case beside.P99 > 2*alone.P99+200*time.Millisecond:
		return fmt.Errorf("a client that never reads delayed another one: p99 %v, before %v", beside.P99, alone.P99)
	}
	return nil
}
