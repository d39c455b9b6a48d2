package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

func (a *app) taskWatch() command {
	return command{
		use: "watch TASK", short: "Follow a task until it ends",
		long: `Follows a task until it ends. On a terminal the steps are drawn as layers of
dependency and redrawn as they change; elsewhere every change is a line. With
-o json or yaml the task is written once for every change, as one line or one
document. The exit code is 0 when the task completed, 1 when it ended in error
or was cancelled.`,
		run: func(ctx context.Context, c *api, args []string) error { return a.watch(ctx, c, args[0]) },
	}
}

// viewer shows one state of the task after the other.
type viewer interface {
	show(p picture) error
}

func (a *app) newViewer() viewer {
	switch {
	case a.global.output != formatTable:
		return &documents{app: a}
	case a.screen.live:
		return &redraw{app: a}
	}
	return &changeLog{app: a, states: map[string]stepView{}}
}

// watch polls the task until it ends, often while it changes and more rarely
// while it does not.
func (a *app) watch(ctx context.Context, c *api, id string) error {
	p, view := poll{app: a, client: c, task: id}, a.newViewer()
	w := watched{app: a, client: c, durations: map[string]time.Duration{}}
	wait := time.Duration(0)
	for {
		task, err := p.next(ctx, wait)
		if err != nil {
			return err
		}
		changed := w.update(ctx, task)
		if err := view.show(w.picture()); err != nil {
			return err
		}
		if task.Terminal() {
			return a.outcome(ctx, c, task)
		}
		if wait *= 2; changed || wait < shortestPause {
			wait = shortestPause
		}
		wait = min(wait, longestPause)
	}
}

// maxTimed bounds the tasks whose history is read again with every change.
const maxTimed = 500

// watched is what is known of the task so far.
type watched struct {
	app       *app
	client    *client.Client
	task      *client.Task
	template  *workflow.Template
	asked     bool // for the template
	durations map[string]time.Duration
}

// update takes in the newest answer and reports whether something happened.
func (w *watched) update(ctx context.Context, task *client.Task) bool {
	before := w.task
	w.task = task
	if !w.asked {
		w.readTemplate(ctx)
	}
	if before != nil && fingerprint(before) == fingerprint(task) {
		return false
	}
	w.readDurations(ctx)
	return true
}

// readTemplate learns what the steps depend on. The picture does without when the server
// does not tell.
func (w *watched) readTemplate(ctx context.Context) {
	w.asked = true
	detail, err := w.client.Template(ctx, w.task.Namespace, w.task.Name, w.task.Version)
	if err == nil {
		w.template = parsedConfiguration(detail)
	} else { // the steps can be shown without their dependencies
		w.app.logf(1, "the dependencies are not known: %v", err)
	}
}

// readDurations learns how long attempts took. The picture does without when
// the server does not tell.
func (w *watched) readDurations(ctx context.Context) {
	done := w.task.CompletedSteps + w.task.FailedSteps
	if w.app.global.output != formatTable || done == 0 || len(w.task.Steps) > maxTimed {
		return
	}
	line, err := w.client.Timeline(ctx, w.task.TaskUUID)
	if err != nil {
		w.app.logf(1, "the durations are not known: %v", err)
		return
	}
	for _, t := range line.Attempts {
		if t.Claimed != nil && t.Reported != nil {
			w.durations[t.StepName] = duration(*t.Reported - *t.Claimed)
		}
	}
}

func (w *watched) picture() picture {
	return picture{task: w.task, nodes: drawGraph(w.template, w.task.Steps), durations: w.durations, now: w.app.now()}
}

// fingerprint is what counts as a change.
func fingerprint(t *client.Task) string {
	var b strings.Builder
	b.WriteString(t.Status)
	for _, s := range t.Steps {
		fmt.Fprintf(&b, "|%s=%s#%d", s.Name, s.CurrentState, s.Attempts)
	}
	return b.String()
}

// outcome turns the end of a task into the outcome of the command and tells
// why steps failed.
func (a *app) outcome(ctx context.Context, c *api, task *client.Task) error {
	if task.Status == "complete" || task.Status == "resolved_manually" {
		return nil
	}
	text := fmt.Sprintf("task %s ended: %s", task.TaskUUID, task.Status)
	if task.Status == "error" {
		text += suffixed("; ", strings.Join(a.failedSteps(ctx, c, task), "; "))
	}
	return failure(text)
}

// failedSteps says which steps ended in error and why, as far as the server
// tells.
func (a *app) failedSteps(ctx context.Context, c *api, task *client.Task) (lines []string) {
	const most = 5
	steps, err := c.Steps(ctx, task.TaskUUID)
	if err != nil {
		a.logf(1, "the errors of the steps are not known: %v", err)
		return nil
	}
	for i := range steps {
		if steps[i].CurrentState != "error" {
			continue
		}
		if len(lines) == most {
			return append(lines, "and more")
		}
		line := "step " + steps[i].Name + " failed"
		if r := stepResult(&steps[i]); r != nil && r.Error != nil {
			line += suffixed(": ", wording.Clip(oneLine(r.Error.Message), 200))
		}
		lines = append(lines, line)
	}
	return lines
}

// documents writes the task once for every change.
type documents struct {
	app  *app
	last string // what was written, as its fingerprint
}

func (d *documents) show(p picture) error {
	now := fingerprint(p.task)
	if now == d.last {
		return nil
	}
	if d.last != "" && d.app.global.output == formatYAML {
		d.app.printf("---\n")
	}
	d.last = now
	return d.app.line(p.task)
}

// changeLog writes a line for every change.
type changeLog struct {
	app    *app
	status string
	states map[string]stepView
}

// stepView is what the log compares of a step.
type stepView struct {
	state    string
	attempts int
}

func (l *changeLog) show(p picture) error {
	at := p.now.UTC().Format("15:04:05.000")
	for _, n := range p.nodes {
		before, known := l.states[n.name]
		if n.step == nil || (known && before == stepView{n.state, n.attempts}) {
			continue
		}
		l.states[n.name] = stepView{n.state, n.attempts}
		change := prefixed(before.state, " → ") + n.state
		line := fmt.Sprintf("%s  %s  %s  attempt %s", at, oneLine(n.name), change, share(n.attempts, n.maximum))
		l.app.printf("%s%s\n", line, suffixed("  ", p.duration(n)))
	}
	if l.status != p.task.Status {
		l.app.printf("%s  task  %s%s\n", at, prefixed(l.status, " → "), p.task.Status)
		l.status = p.task.Status
	}
	return nil
}

// prefixed puts a suffix after a text unless the text is empty.
func prefixed(text, suffix string) string {
	if text == "" {
		return ""
	}
	return text + suffix
}

// redraw draws lines over those before.
type redraw struct {
	app   *app
	drawn int // lines on the screen
}

// Lines longer than the window must not wrap, or the cursor would come back to
// the wrong line.
const (
	wrapOff   = "\x1b[?7l"
	wrapOn    = "\x1b[?7h"
	clearLine = "\x1b[K"
	clearDown = "\x1b[J"
)

func (r *redraw) show(p picture) error {
	_, height := r.app.screen.size()
	if p.task.Terminal() {
		height = 0 // the last picture may scroll
	} else if height > 1 {
		height-- // the cursor's own line
	}
	return r.draw(p.lines(r.app.screen, height))
}

func (r *redraw) draw(lines []string) error {
	var b strings.Builder
	b.WriteString(wrapOff)
	if r.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", r.drawn)
	}
	for _, line := range lines {
		b.WriteString(line + clearLine + "\n")
	}
	b.WriteString(clearDown + wrapOn)
	r.drawn = len(lines)
	_, err := r.app.stdout.Write([]byte(b.String()))
	return err
}

const (
	// shortestPause and longestPause bound how often a task is asked for.
	shortestPause = 200 * time.Millisecond
	longestPause  = 2 * time.Second
	// longestWait bounds one long poll, so that a connection lost on the way
	// is noticed.
	longestWait = 20 * time.Second
	// maxLosses is how many calls in a row may fail before watching ends; each
	// has been repeated by the client already.
	maxLosses = 5
)

// poll asks for a task again and again. A server that knows ?wait answers when
// the task ends or the time is over; with one that does not, poll waits
// itself, so that neither is asked too often.
type poll struct {
	app    *app
	client *client.Client
	task   string
	losses int
}

// next returns the task when it has ended, else after about wait.
func (p *poll) next(ctx context.Context, wait time.Duration) (*client.Task, error) {
	began := p.app.now()
	task, err := p.client.Task(ctx, p.task, wait)
	if err != nil {
		return p.lost(ctx, err)
	}
	p.losses = 0
	// An answer long before its time means that the server did not wait.
	early := wait - p.app.now().Sub(began)
	if !task.Terminal() && early > wait/2 {
		err = p.app.pause(ctx, min(early, longestPause))
	}
	return task, err
}

// lost tries on while the server may come back.
func (p *poll) lost(ctx context.Context, err error) (*client.Task, error) {
	p.losses++
	if exitCode(err) != exitUnavailable || p.losses > maxLosses || ctx.Err() != nil {
		return nil, err
	}
	if p.losses == 1 {
		p.app.warnf("the orchestrator does not answer, trying again")
	}
	if err := p.app.pause(ctx, longestPause); err != nil {
		return nil, err
	}
	return p.next(ctx, 0)
}
