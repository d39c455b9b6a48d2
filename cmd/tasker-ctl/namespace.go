package main

import (
	"context"

	"github.com/tasker-go/tasker/client"
)

func (a *app) namespaces() command {
	pause := command{use: "pause NAMESPACE", short: "Keep workers from claiming steps of a namespace",
		long: `Keeps workers from claiming steps of a namespace, or with --callable the steps of
one handler. Running steps finish, and tasks are still created; they wait.`}
	return command{
		use: "namespace", aliases: []string{"namespaces"}, short: "List, pause and resume namespaces",
		commands: []command{
			{use: "list", lists: true, short: "List the namespaces and which are paused",
				run: askList(a, plainly((*api).Namespaces), "namespaces", a.showNamespaces)},
			a.namespaceChange(pause, (*api).PauseCallable, needed),
			a.namespaceChange(command{use: "resume NAMESPACE", short: "Let workers claim again"}, (*api).ResumeCallable),
		},
	}
}

func (a *app) showNamespaces(all []client.Namespace) {
	var rows []pausable
	for i := range all {
		n := &all[i]
		rows = append(rows, pausable{n.Name, n.Paused, n.PausedAt, n.PausedBy, n.PauseReason})
		for _, c := range n.PausedCallables {
			rows = append(rows, pausable{"  " + c.Callable, true, c.PausedAt, c.PausedBy, c.PauseReason})
		}
	}
	listing(a, func(p *pausable) facts {
		return facts{{"NAMESPACE", p.name}, {"STATE", pausedCell(p.paused)}, {"SINCE", p.at}, {"BY", p.by}, {"REASON", p.reason}}
	})(rows)
}

// pausable is a namespace, or below it a callable of its own that is paused.
type pausable struct {
	name           string
	paused         bool
	at, by, reason any
}

// namespaceChange is a command that pauses or resumes; the rules are for the
// reason.
func (a *app) namespaceChange(d command,
	call func(c *api, ctx context.Context, namespace, callable string, w client.Why) (*client.Namespace, error), rules ...rule) command {
	var callable string
	d.flags = calledFlag(&callable, "only the steps that call this, such as payments.charge; with any method and resolver")
	return change(a, d, func(c *api, ctx context.Context, namespace string, w client.Why) (*client.Namespace, error) {
		return call(c, ctx, namespace, callable, w)
	}, func(n *client.Namespace) {
		a.printf("namespace %s: %s\n", oneLine(n.Name), pausedCell(n.Paused).text)
		for _, c := range n.PausedCallables {
			a.printf("callable %s: paused\n", oneLine(c.Callable))
		}
	}, rules...)
}

// pausedCell is the state of what can be paused.
func pausedCell(paused bool) cell {
	if paused {
		return stateCell("paused")
	}
	return stateCell("running")
}
