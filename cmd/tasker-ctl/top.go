package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/sourcegraph/conc/pool"

	"github.com/tasker-go/tasker/client"
)

// The metrics that top reads.
const (
	metricDepth    = "tasker_queue_depth"
	metricUnserved = "tasker_steps_without_worker"
	metricCreated  = "tasker_tasks_created_total"
	metricEnded    = "tasker_tasks_completed_total"
	metricClaimed  = "tasker_steps_claimed_total"
	metricApplied  = "tasker_step_results_total"
	metricActive   = "tasker_worker_handlers_active"
	metricPermits  = "tasker_worker_handlers_limit"
)

// fleetView is one look at the fleet. Rates are per second, and null where it takes
// another look or an answer to know them.
type fleetView struct {
	At            client.Time        `json:"at"`
	TasksCreated  *float64           `json:"tasks_created_rate"`
	TasksEnded    *float64           `json:"tasks_ended_rate"`
	TasksFailed   *float64           `json:"tasks_failed_rate"` // of those that ended
	StepsClaimed  *float64           `json:"steps_claimed_rate"`
	StepsApplied  *float64           `json:"steps_applied_rate"`
	Queues        []queueView        `json:"queues"`
	Workers       []workerView       `json:"workers"`
	Orchestrators []orchestratorView `json:"orchestrators"`
	Warning       string             `json:"warning,omitempty"`
}

type queueView struct {
	Namespace     string        `json:"namespace"`
	Waiting       int           `json:"waiting"`
	WithoutWorker int           `json:"without_worker"`
	Paused        bool          `json:"paused"`
	Kept          *client.Depth `json:"kept,omitempty"` // as the fleet last saw it
}

type workerView struct {
	client.WorkerState
	Running *int     `json:"running"` // handlers
	Permits *int     `json:"permits"`
	Claims  *float64 `json:"steps_claimed_rate"`
}

type orchestratorView struct {
	client.Replica
	Creates *float64 `json:"tasks_created_rate"`
}

// fleetWatch looks at the fleet again and again.
type fleetWatch struct {
	app      *app
	client   *api
	at       map[string]func(address string) *api // by the kind of replica
	peers    map[string]*api                      // by UUID
	before   map[string]figures                   // of the last look, by UUID
	lookedAt time.Time
}

func (a *app) top() command {
	interval, once := 2*time.Second, false
	return command{
		use: "top", short: "Watch the live fleet: queues, workers, orchestrators and rates",
		long: `Watches the live fleet: the namespaces with their waiting steps, the workers with
their running handlers and permits, the orchestrators, and how many tasks and
steps per second there are. On a terminal it is drawn anew every --interval until
q or Ctrl-C; elsewhere, with --once and with -o json or yaml it is written once,
after the second that rates take.

Numbers of a daemon come from /metrics at the address that it has registered,
without credentials unless that is the configured one. Where it cannot be read,
they are missing, and the rates are those of the others. Without any, tasks and
waiting steps are as the fleet has kept them, of the last five minutes; so is the
age of the oldest waiting step.`,
		flags: all(
			intervalFlag(&interval, "how often it is drawn, 500ms or more"),
			opt(&once, "once", "write it once, and end"),
		),
		run: func(ctx context.Context, c *api, _ []string) error {
			w := &fleetWatch{app: a, client: c, at: map[string]func(string) *api{}, peers: map[string]*api{}}
			for _, d := range []daemon{orchestrator, worker} {
				at, err := a.peers(d)
				if err != nil {
					return err
				}
				w.at[string(d)] = at
			}
			if once || !a.screen.live || a.global.output != formatTable {
				return w.once(ctx)
			}
			return w.follow(ctx, interval)
		},
	}
}

// once looks twice, because rates are between two looks.
func (w *fleetWatch) once(ctx context.Context) error {
	if _, err := w.look(ctx); err != nil {
		return err
	}
	if err := w.app.pause(ctx, time.Second); err != nil {
		return err
	}
	view, err := w.look(ctx)
	if err != nil {
		return err
	}
	return w.app.emit(view, func() {
		for _, line := range w.app.fleetLines(view, 0) {
			w.app.printf("%s\n", line)
		}
	})
}

// follow draws until the user ends it, or the orchestrator stays silent.
func (w *fleetWatch) follow(ctx context.Context, interval time.Duration) error {
	ctx, restore := w.app.untilQuit(ctx)
	defer restore()
	screen, view, losses := &redraw{app: w.app}, &fleetView{}, 0
	for {
		next, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			view, losses = next, 0
		case exitCode(err) != exitUnavailable || losses == maxLosses || view.At.IsZero():
			return err
		default:
			losses++
			view.Warning = "no answer since " + view.At.Format(time.TimeOnly) + ", trying again"
		}
		_, height := w.app.screen.size()
		if err := screen.draw(w.app.fleetLines(view, max(height-1, 0))); err != nil {
			return err
		}
		if w.app.pause(ctx, interval) != nil {
			return nil
		}
	}
}

// untilQuit ends the context when q is pressed; restore gives the terminal back.
func (a *app) untilQuit(ctx context.Context) (quit context.Context, restore func()) {
	ctx, cancel := context.WithCancel(ctx)
	undo := func() {}
	if file, ok := a.stdin.(*os.File); ok {
		undo = keysAtOnce(file)
	}
	go func() { // it ends with stdin, or with the process
		key := make([]byte, 1)
		for {
			if _, err := a.stdin.Read(key); err != nil {
				return
			}
			if key[0] == 'q' || key[0] == 'Q' {
				cancel()
				return
			}
		}
	}()
	return ctx, func() { cancel(); undo() }
}

// look asks the orchestrator, and then the daemons that it knows.
func (w *fleetWatch) look(ctx context.Context) (*fleetView, error) {
	fleet, err := w.client.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	workers, err := allWorkers(ctx, w.client, nil)
	if err != nil {
		return nil, err
	}
	namespaces, err := w.client.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	own := w.read(ctx, w.client)
	kept, _ := w.client.NamespaceRates(ctx, "", client.RatesOptions{Last: keptRates, Resolution: time.Minute}) // nil where it may not be read
	now := w.readAll(ctx, fleet.Replicas, own)
	at := w.app.now().UTC()
	rate := w.rates(now, at.Sub(w.lookedAt))
	created, ended, failed := keptPerSecond(kept)
	view := &fleetView{At: client.Time{Time: at}, TasksCreated: cmp.Or(rate("", metricCreated, ""), created), TasksEnded: cmp.Or(rate("", metricEnded, ""), ended),
		TasksFailed: cmp.Or(rate("", metricEnded, `state="error"`), failed), StepsClaimed: rate("", metricClaimed, ""), StepsApplied: rate("", metricApplied, ""),
		Queues: queueViews(namespaces, own, kept), Workers: []workerView{}, Orchestrators: []orchestratorView{}, Warning: fleet.Warning}
	for _, r := range fleet.Replicas {
		if r.Kind == string(orchestrator) {
			view.Orchestrators = append(view.Orchestrators, orchestratorView{r, rate(r.UUID, metricCreated, "")})
		}
	}
	for _, s := range workers {
		v := workerView{WorkerState: s, Claims: rate(s.WorkerUUID, metricClaimed, "")}
		if n := now[s.WorkerUUID]; n != nil {
			v.Running, v.Permits = new(int(n.total(metricActive, ""))), new(int(n.total(metricPermits, "")))
		}
		if s.StoppedAt == nil {
			view.Workers = append(view.Workers, v)
		}
	}
	w.before, w.lookedAt = now, at
	return view, nil
}

// read is nil where the metrics cannot be read.
func (w *fleetWatch) read(ctx context.Context, c *api) figures {
	text, err := c.Metrics(ctx)
	if err != nil {
		return nil
	}
	return parseMetrics(text)
}

// maxPeers bounds how many daemons are asked with every look.
const maxPeers = 64

// readAll asks the live daemons, and takes what the configured orchestrator has said
// for the only one.
func (w *fleetWatch) readAll(ctx context.Context, replicas []client.Replica, own figures) map[string]figures {
	live := slices.DeleteFunc(slices.Clone(replicas), func(r client.Replica) bool { return !r.Live || r.Stopped })
	orchestrators := 0
	for i := range live {
		if live[i].Kind == string(orchestrator) {
			orchestrators++
		}
	}
	found := make([]figures, min(len(live), maxPeers))
	readers := pool.New().WithMaxGoroutines(atOnce)
	for i := range found {
		if r := live[i]; r.Kind == string(orchestrator) && orchestrators == 1 {
			found[i] = own
		} else if peer := w.peer(&r); peer != nil {
			readers.Go(func() { found[i] = w.read(ctx, peer) })
		}
	}
	readers.Wait() // what cannot be read is missing
	now := map[string]figures{}
	for i := range found {
		if found[i] != nil {
			now[live[i].UUID] = found[i]
		}
	}
	return now
}

// peer is the client for a daemon, nil where it has no address.
func (w *fleetWatch) peer(r *client.Replica) *api {
	at := w.at[r.Kind]
	if w.peers[r.UUID] == nil && at != nil && r.Address != "" {
		w.peers[r.UUID] = at(r.Address)
	}
	return w.peers[r.UUID]
}

// rates is how fast counters have grown since the last look: of one daemon, or of all
// that were read both times. A daemon that has started anew counts from 0.
func (w *fleetWatch) rates(now map[string]figures, over time.Duration) func(uuid, name, label string) *float64 {
	return func(uuid, name, label string) *float64 {
		sum, known := 0.0, false
		for id, n := range now {
			if before, ok := w.before[id]; ok && (uuid == "" || id == uuid) && over > 0 {
				grown := n.total(name, label) - before.total(name, label)
				if grown < 0 {
					grown = n.total(name, label)
				}
				sum, known = sum+grown, true
			}
		}
		if !known {
			return nil
		}
		return new(sum / over.Seconds())
	}
}

// keptRates is the time whose rates stand in for those of metrics that cannot be read.
const keptRates = 5 * time.Minute

// keptPerSecond is how many tasks were created, ended and failed a second; nil where the rates cannot be read.
func keptPerSecond(kept *client.NamespaceRatesList) (created, ended, failed *float64) {
	if kept == nil || !kept.To.After(kept.From.Time) {
		return nil, nil, nil
	}
	over := kept.To.Sub(kept.From.Time).Seconds()
	created, ended, failed = new(float64), new(float64), new(float64)
	for i := range kept.Namespaces {
		n := &kept.Namespaces[i]
		*created += float64(n.Created) / over
		*ended += float64(n.Completed+n.Failed+n.Cancelled+n.Resolved) / over
		*failed += float64(n.Failed) / over
	}
	return created, ended, failed
}

// queueViews are the namespaces, those with the most waiting steps first. Where the metrics of the orchestrator cannot be read,
// they are as the fleet last saw them.
func queueViews(namespaces []client.Namespace, own figures, kept *client.NamespaceRatesList) []queueView {
	seen := map[string]*client.Depth{}
	if kept != nil {
		for i := range kept.Namespaces {
			seen[kept.Namespaces[i].Namespace] = &kept.Namespaces[i].Depth
		}
	}
	waiting, without := own.byNamespace(metricDepth), own.byNamespace(metricUnserved)
	paused := map[string]bool{}
	for _, n := range namespaces {
		paused[n.Name] = n.Paused
		waiting[n.Name] += 0 // it is shown without any as well
	}
	views := []queueView{}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		view := queueView{Namespace: name, Waiting: int(waiting[name]), WithoutWorker: int(without[name]), Paused: paused[name], Kept: seen[name]}
		if own == nil && view.Kept != nil {
			view.Waiting = view.Kept.Waiting
		}
		views = append(views, view)
	}
	slices.SortStableFunc(views, func(x, y queueView) int { return cmp.Compare(y.Waiting, x.Waiting) })
	return views
}

// perSecond writes a rate.
func perSecond(rate *float64) string {
	if rate == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f/s", *rate)
}

// fleetLines draws a look in at most height lines; 0: in as many as it takes.
func (a *app) fleetLines(v *fleetView, height int) []string {
	lines := []string{fmt.Sprintf("%s  tasks: created %s, ended %s, of them in error %s  steps: claimed %s, applied %s", v.At.Format(time.DateTime+"Z"),
		perSecond(v.TasksCreated), perSecond(v.TasksEnded), perSecond(v.TasksFailed), perSecond(v.StepsClaimed), perSecond(v.StepsApplied))}
	if v.Warning != "" {
		lines = append(lines, a.screen.paint(yellow, "warning: "+oneLine(v.Warning)))
	}
	queues := resource[queueView]{app: a, facts: func(q *queueView) facts {
		oldest := ""
		if q.Kept != nil && q.Kept.Waiting > 0 {
			oldest = brief(q.Kept.OldestSeconds)
		}
		return facts{{"NAMESPACE", q.Namespace}, {"WAITING", q.Waiting}, {"OLDEST", oldest}, {"WITHOUT WORKER", q.WithoutWorker}, {"STATE", pausedCell(q.Paused)}}
	}}
	workers := resource[workerView]{app: a, facts: func(w *workerView) facts {
		running := ""
		if w.Permits != nil {
			running = share(*w.Running, *w.Permits)
		}
		return facts{{"WORKER", w.WorkerID}, {"STATUS", workerCell(&w.WorkerState)}, {"MODE", w.Mode}, {"HEARTBEAT", ago(w.HeartbeatAgeSeconds)},
			{"RUNNING", running}, {"CLAIMS", perSecond(w.Claims)}, {"NAMESPACES", w.Namespaces}}
	}}
	orchestrators := resource[orchestratorView]{app: a, facts: func(o *orchestratorView) facts {
		return facts{{"ORCHESTRATOR", cmp.Or(o.ID, o.UUID)}, {"STATE", replicaState(&o.Replica)}, {"MODE", o.Mode},
			{"HEARTBEAT", ago(o.HeartbeatAgeSeconds)}, {"CREATES", perSecond(o.Creates)}}
	}}
	sections := [][]string{queues.table(v.Queues).lines(), workers.table(v.Workers).lines(), orchestrators.table(v.Orchestrators).lines()}
	for _, section := range fit(sections, height-len(lines)-len(sections)) {
		lines = append(append(lines, ""), section...)
	}
	if height > 0 {
		lines = lines[:min(len(lines), height)]
	}
	return lines
}

// fit shortens the longest sections until all fit into so many lines; each keeps its
// heading, its first line, and how much is missing.
func fit(sections [][]string, height int) [][]string {
	missing := make([]int, len(sections))
	length := func(i int) int { return len(sections[i]) - missing[i] }
	for total := len(slices.Concat(sections...)); height > 0 && total > height; total-- {
		longest := 0
		for i := range sections {
			if length(i) > length(longest) {
				longest = i
			}
		}
		if length(longest) <= 3 {
			break
		}
		missing[longest]++
	}
	for i, s := range sections {
		if missing[i] > 0 {
			sections[i] = append(s[:length(i)-1], fmt.Sprintf("… and %d more", missing[i]+1))
		}
	}
	return sections
}
