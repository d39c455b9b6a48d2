package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) events() command {
	return command{
		use: "events", aliases: []string{"event"}, short: "Show durable domain events and their consumers",
		long: `Steps publish domain events, as their templates declare. Durable ones are kept for
consumers, which have a position among them; these commands show both.`,
		commands: []command{a.eventsList(), a.eventsTail(), a.consumers()},
	}
}

// eventFlags select events; after is where the position goes.
func (a *app) eventFlags(o *client.EventListOptions, after any) flags {
	return all(
		a.namespace(&o.Namespace, "only events of this namespace"),
		opt(&o.Name, "name", "only events of this name; * stands for any characters, as in 'payment.*'"),
		opt(&o.TaskUUID, "task", "only events of this task, by its `UUID`", a.aTask),
		opt(after, "after", "only events after this position"),
	)
}

func (a *app) eventsList() command {
	o := client.EventListOptions{Limit: 25}
	return command{
		use: "list", lists: true, short: "List events by position",
		flags: all(a.eventFlags(&o, &o.After), limit(&o.Limit, limits.MaxEventsPerPage, "how many", hinting("see more with --after"))),
		run: ask(a, with((*api).Events, &o), func(list *client.EventList) {
			listing(a, eventFacts)(list.Events)
			if list.More {
				a.printf("there may be more after position %d\n", list.Next)
			}
		}),
	}
}

func eventFacts(e *client.Event) facts {
	m := &e.Metadata
	return facts{{"POSITION", e.Position}, {"AT", m.FiredAt}, {"NAMESPACE", m.Namespace},
		{"EVENT", e.Name}, {"TASK", m.TaskUUID}, {"STEP", m.StepName},
		{"PAYLOAD", wording.Clip(string(e.Payload), 60)}}
}

func (a *app) eventsTail() command {
	o := client.EventListOptions{Limit: limits.MaxEventsPerPage}
	var fromBeginning bool
	var count int
	var after *int64
	return command{
		use: "tail", short: "Follow events as they are published",
		long: `Follows events as they are published, starting now unless --after or
--from-beginning says otherwise, until it is interrupted or has shown --limit
events. With -o json each event is one line. It polls every second, and moves no
consumer.`,
		flags: all(
			a.eventFlags(&o, &after),
			opt(&fromBeginning, "from-beginning", "start with the oldest event that is kept"),
			opt(&count, "limit,l", "end after this number of events; 0: never", notNegative, also("count")),
		),
		run: func(ctx context.Context, c *api, _ []string) error {
			o.After, o.FromNow = valueOf(after), !fromBeginning && after == nil
			return a.tail(ctx, c, o, count)
		},
	}
}

// tailPause is the time between two questions while nothing comes.
const tailPause = time.Second

func (a *app) tail(ctx context.Context, c *api, o client.EventListOptions, count int) error {
	for left := count; ; {
		list, err := c.Events(ctx, o)
		if err != nil {
			return err
		}
		o.After, o.FromNow = list.Next, false
		for i := range list.Events {
			if err := a.showEvent(&list.Events[i]); err != nil {
				return err
			}
			if left--; left == 0 {
				return nil
			}
		}
		if list.More {
			continue
		}
		if err := a.pause(ctx, tailPause); err != nil {
			return err
		}
	}
}

// showEvent writes one event as a line, or as a document.
func (a *app) showEvent(e *client.Event) error {
	if a.global.output != formatTable {
		return a.line(e)
	}
	m := &e.Metadata
	a.printf("%d  %s  %s  %s  %s  %s\n", e.Position, instant(&m.FiredAt), oneLine(m.Namespace), oneLine(e.Name), m.TaskUUID,
		oneLine(wording.Clip(string(e.Payload), 200)))
	return nil
}

func (a *app) consumers() command {
	r := resource[client.EventConsumer]{a, "event consumer", consumerName, consumerFacts}
	return command{
		use: "consumers", aliases: []string{"consumer"}, short: "List, create, move and delete consumers of events",
		long: `A consumer has a position among the events of a namespace and patterns for their
names. Its reader claims events over the API or in SQL and acknowledges them.`,
		commands: []command{
			a.consumerCreate(), a.consumerReset(),
			{use: "list", lists: true, short: "List consumers and how far behind they are",
				run: askList(a, plainly((*api).EventConsumers), "consumers", r.list)},
			{use: "show CONSUMER", aliases: []string{"get"}, short: "Show a consumer", run: ask(a, of((*api).EventConsumer), r.show)},
			change(a, command{use: "delete CONSUMER", short: "Delete a consumer and its position; events stay"},
				(*api).DeleteEventConsumer, r.said("deleted")).
				confirmed("yes, do it", "consumers delete deletes the consumer and its position", "confirm with --yes"),
		},
	}
}

func consumerName(e *client.EventConsumer) string { return e.Name }

// consumerArgument is a consumer by its name.
var consumerArgument = argument{offer: offers(plainly((*api).EventConsumers),
	func(l []client.EventConsumer) []client.EventConsumer { return l }, consumerName)}

func patternsOf(e *client.EventConsumer) string {
	if len(e.Patterns) == 0 {
		return "*"
	}
	return strings.Join(e.Patterns, ",")
}

// unread is how many events wait; the server counts up to 1,000.
func unread(e *client.EventConsumer) any {
	if e.Unread >= 1000 {
		return "1000+"
	}
	return e.Unread
}

func consumerFacts(e *client.EventConsumer) facts {
	return facts{
		{"Consumer", e.Name},
		{"Namespace", e.Namespace},
		{"PATTERNS", wording.Clip(patternsOf(e), 40)},
		{"patterns", patternsOf(e)},
		{"Position", e.Position},
		{"Unread", unread(e)},
		{"Oldest unread", e.OldestUnreadAt},
		{"Holder", e.Holder},
		{"Lease until", e.LeaseUntil},
		{"last claimed", e.LastClaimedAt},
		{"last done", e.LastAckedAt},
		{"created", e.CreatedAt},
		{"changed", e.UpdatedAt},
	}
}

// eventPlaces complete where a consumer may begin; a position is allowed too.
var eventPlaces = offering(oneOfWords(client.EventsFromBeginning, client.EventsFromNow))

func (a *app) consumerCreate() command {
	r := client.EventConsumerRequest{Namespace: "default", From: client.EventsFromBeginning}
	return command{
		use: "create CONSUMER", short: "Create a consumer of the events of a namespace", completes: cobra.NoFileCompletions,
		example: "  tasker-ctl events consumers create mailer -n payments --pattern 'payment.*' --from now",
		flags: all(
			a.namespace(&r.Namespace, "namespace whose events it reads"),
			opt(&r.Patterns, "pattern", "name of events, in which * stands for any characters; may be repeated; none: every event"),
			opt(&r.From, "from", "beginning, now, or the position after which it starts", eventPlaces),
			why(&r.Reason, &r.Actor),
		),
		run: ask(a, with((*api).CreateEventConsumer, &r, &r.Name), func(e *client.EventConsumer) {
			a.printf("event consumer %s created after position %d\n", oneLine(e.Name), e.Position)
		}),
	}
}

func (a *app) consumerReset() command {
	var r client.EventReset
	return command{
		use: "reset CONSUMER", short: "Move a consumer to another position",
		long: `Moves a consumer to another position, and revokes the claim of its reader. Events
after the new position are read again.`,
		flags: all(
			opt(&r.To, "to", "beginning, now, or the position after which it continues", needed, eventPlaces),
			why(&r.Reason, &r.Actor, needed),
		),
		run: ask(a, ofWith((*api).ResetEventConsumer, &r), func(e *client.EventConsumer) {
			a.printf("event consumer %s continues after position %d\n", oneLine(e.Name), e.Position)
		}),
	}
}
