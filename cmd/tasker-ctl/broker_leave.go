package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/signal/amqp"
)

// lookPause is the time between two looks of a command that waits.
const lookPause = time.Second

// The stages of a move to an event source.
const (
	stageBefore = "before" // a daemon does not use it
	stageBoth   = "both"   // all use it, some beside another one
	stageOnly   = "only"   // all use it alone
)

// moveReport is where a fleet is on its way to an event source.
type moveReport struct {
	To      string           `json:"to"`
	Stage   string           `json:"stage"`
	Next    string           `json:"next"`
	Apart   []string         `json:"apart,omitempty"` // pairs of daemons that do not hear each other
	Daemons []client.Replica `json:"daemons"`         // those that live

	behind map[string][]string // stage → the daemons that have not come to it
}

// sourcesOf are those that a daemon sends over and listens to.
func sourcesOf(r *client.Replica) []string {
	return slices.DeleteFunc([]string{r.EventSource, r.MovingFrom}, func(s string) bool { return s == "" })
}

// moveOf judges a fleet.
func moveOf(fleet *client.Fleet, to string) *moveReport {
	m := &moveReport{To: to, Stage: stageOnly, behind: map[string][]string{}, Daemons: []client.Replica{}}
	var lacking, deaf, from []string
	for _, r := range fleet.Replicas {
		if !r.Live {
			continue
		}
		m.Daemons = append(m.Daemons, r)
		name, uses := cmp.Or(r.ID, r.UUID), sourcesOf(&r)
		if !slices.Contains(uses, to) || slices.Contains(r.Unheard, to) {
			m.behind[stageBoth] = append(m.behind[stageBoth], name)
		}
		if !slices.Equal(uses, []string{to}) || slices.Contains(r.Unheard, to) {
			m.behind[stageOnly] = append(m.behind[stageOnly], name)
		}
		switch {
		case !slices.Contains(uses, to):
			m.Stage, lacking = stageBefore, append(lacking, name)
		case slices.Contains(r.Unheard, to):
			deaf = append(deaf, name)
		}
		if len(uses) > 1 && m.Stage == stageOnly {
			m.Stage = stageBoth
		}
		from = append(from, slices.DeleteFunc(uses, func(s string) bool { return s == to })...)
	}
	for i := range m.Daemons {
		for j := range i {
			x, y := &m.Daemons[i], &m.Daemons[j]
			other := sourcesOf(y)
			hears := func(source string) bool { return slices.Contains(other, source) }
			if mine := sourcesOf(x); len(mine) > 0 && len(other) > 0 && !slices.ContainsFunc(mine, hears) {
				m.Apart = append(m.Apart, fmt.Sprintf("%s and %s", cmp.Or(y.ID, y.UUID), cmp.Or(x.ID, x.UUID)))
			}
		}
	}
	for _, names := range [][]string{m.behind[stageBoth], m.behind[stageOnly], lacking, deaf, from} { // the fleet is listed in no order
		slices.Sort(names)
	}
	switch from = slices.Compact(from); {
	case len(m.Daemons) == 0:
		m.Stage, m.Next = stageBefore, "no daemon lives: start them with event_source = \""+to+"\""
	case m.Stage == stageBefore:
		m.Next = fmt.Sprintf("restart, one after the other, with event_source = %q and moving_from = %q: %s", to, strings.Join(from, " or "), strings.Join(lacking, ", "))
	case len(deaf) > 0:
		m.Next = fmt.Sprintf("wait: signals over %s are not known to arrive yet at %s; if that lasts, their logs say why", to, strings.Join(deaf, ", "))
	case m.Stage == stageBoth:
		m.Next = fmt.Sprintf("restart, one after the other, with event_source = %q and without moving_from: %s", to, strings.Join(m.behind[stageOnly], ", "))
	default:
		m.Next = "none: all daemons use " + to + " alone"
	}
	return m
}

func (a *app) brokerMigrate() command {
	var to, until string
	return command{
		use: "migrate", short: "Show how far the fleet has moved to another event source, or wait for it",
		long: `Shows which event sources the daemons use, as their heartbeats tell, how far the
fleet has moved to the one of --to, and the next step. It changes nothing: the
sources are settings of the daemons, which are restarted twice, first with both
(common.signals.moving_from) and then without the old one. See docs/operate/operations.md.

With --until it waits, for 30 s or for --timeout, until all daemons that live have
come to a stage: both, where each uses the source, beside the old one or alone, or
only, where each uses it alone; and signals over it are known to arrive. It ends
with exit code 1 if they do not come to it, and names those that are behind. An
orchestrator that does not answer meanwhile is asked again.`,
		example: "  tasker-ctl broker migrate --to amqp\n  tasker-ctl broker migrate --to amqp --until both --timeout 10m",
		flags: all(
			opt(&to, "to", "event source that the fleet moves to", needed, among("notify", "wal", "relay", "amqp", "redis")),
			opt(&until, "until", "wait for this stage", among(stageBoth, stageOnly)),
		),
		run: func(ctx context.Context, c *api, _ []string) error {
			waiting, cancel := a.within(ctx, brokerTimeout)
			defer cancel()
			for said := ""; ; {
				fleet, err := c.Fleet(ctx)
				if err != nil && until != "" && exitCode(err) == exitUnavailable && a.pause(waiting, lookPause) == nil {
					a.logf(1, "%s", oneLine(err.Error())) // the orchestrator may be the one that restarts
					continue
				}
				if err != nil {
					return err
				}
				m := moveOf(fleet, to)
				behind := m.behind[until]
				if until == "" || len(m.Daemons) > 0 && len(behind) == 0 {
					return a.emit(m, func() { a.showMove(m) })
				}
				if text := fmt.Sprintf("%d of %d daemons are behind: %s", len(behind), len(m.Daemons), strings.Join(behind, ", ")); text != said {
					said = text
					a.logf(0, "%s", oneLine(text))
				}
				if a.pause(waiting, lookPause) != nil {
					if ctx.Err() != nil {
						return ctx.Err()
					}
					return a.verdict(m, false, failure(fmt.Sprintf("the fleet has not come to the stage %s: %s", until, said)), func() { a.showMove(m) })
				}
			}
		},
	}
}

func (a *app) showMove(m *moveReport) {
	listing(a, func(r *client.Replica) facts {
		unheard := cell{text: strings.Join(r.Unheard, ", ")}
		if len(r.Unheard) > 0 {
			unheard.style = yellow
		}
		return facts{{"ID", cmp.Or(r.ID, r.UUID)}, {"KIND", r.Kind}, {"HOST", r.Hostname}, {"MODE", r.Mode}, {"SOURCE", r.EventSource},
			{"MOVING FROM", r.MovingFrom}, {"UNHEARD", unheard}}
	})(m.Daemons)
	a.printf("\nstage: %s\nnext: %s\n", m.Stage, oneLine(m.Next))
	for _, pair := range m.Apart {
		a.printf("%s\n", a.screen.paint(yellow, "warning: no source in common: "+oneLine(pair)))
	}
}

// drainReport is what the durable queues of a broker hold.
type drainReport struct {
	Drained     bool          `json:"drained"`
	Holding     []string      `json:"holding,omitempty"` // queues with messages or consumers
	DeadLetters int           `json:"dead_letters"`
	Removed     bool          `json:"removed"`
	Left        []amqp.Object `json:"left,omitempty"` // not removed, with the reasons
	Objects     []amqp.Object `json:"objects"`
}

func (d *drainReport) look(list []amqp.Object, deadLetters string) {
	d.Objects, d.Holding, d.DeadLetters = list, nil, 0
	for _, o := range list {
		switch {
		case o.Kind != amqp.KindQueue || o.Found == nil:
		case o.Name == deadLetters:
			d.DeadLetters = o.Found.Messages
		case o.Found.Messages > 0 || o.Found.Consumers > 0:
			d.Holding = append(d.Holding, fmt.Sprintf("%s has %d messages and %d consumers", o.Name, o.Found.Messages, o.Found.Consumers))
		}
	}
	d.Drained = len(d.Holding) == 0
}

func (a *app) brokerDrain() command {
	var remove bool
	return a.onBroker(command{
		use: "drain", short: "Wait until the durable queues are empty, and remove them",
		long: `Waits, for 30 s or for --timeout, until no durable queue of the configuration holds
messages or has consumers. What a consumer has received and not acknowledged is not
shown by AMQP, and returns to its queue when the consumer ends: so stop the programs
that publish, let the bridges empty the queues, and then restart the orchestrators
without orchestration.bridge.rabbitmq_queue. Ends with exit code 1, and names the
queues, if they are not empty by then.

With --remove it then deletes the exchanges and queues, and the delayed signals. It
deletes no queue with messages or consumers and no exchange that something else is
bound to, such as a daemon that listens. Dead letters are only counted, and while
there are some nothing is removed: take them out, or purge their queue.`,
		example: "  tasker-ctl broker drain --timeout 10m\n  tasker-ctl broker drain --remove",
		flags:   opt(&remove, "remove", "then delete the exchanges and queues"),
	}, func(ctx context.Context, cfg amqp.Config) error { return a.drain(ctx, cfg, remove) })
}

func (a *app) drain(ctx context.Context, cfg amqp.Config, remove bool) error {
	deadLetters, d := cfg.Topology.Namespace+".dlq", &drainReport{}
	show := func() { a.brokerTable(d.Objects) }
	for said := ""; ; {
		list, err := amqp.Inspect(ctx, cfg)
		if err == nil {
			d.look(list, deadLetters)
		} else if d.Objects == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return err
		}
		if err == nil && d.Drained {
			break
		}
		if text := strings.Join(d.Holding, "; "); text != said {
			said = text
			a.logf(0, "%s", oneLine(text))
		}
		if err := a.pause(ctx, lookPause); errors.Is(err, context.Canceled) {
			return err
		} else if err != nil {
			return a.verdict(d, false, failure("not drained: "+oneLine(said)), show)
		}
	}
	if !remove {
		return a.emit(d, show)
	}
	if d.DeadLetters > 0 {
		return a.verdict(d, false, failure(fmt.Sprintf("nothing was removed: %s holds %d dead letters", deadLetters, d.DeadLetters)), show)
	}
	var err error
	if d.Left, err = amqp.Remove(ctx, cfg); err != nil {
		return err
	}
	var reasons []string
	for _, o := range d.Left {
		reasons = append(reasons, o.Name+": "+oneLine(o.Differs))
	}
	d.Removed = len(d.Left) == 0
	return a.verdict(d, d.Removed, failure("not all was removed: "+strings.Join(reasons, "; ")), func() {
		if d.Removed {
			a.printf("the exchanges and queues are removed\n")
		}
	})
}
