package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// brokerTimeout bounds the work on a broker unless --timeout says otherwise.
const brokerTimeout = 30 * time.Second

func (a *app) broker() command {
	return command{
		use: "broker", short: "Prepare, check and leave the broker that carries signals",
		long: `Works on the RabbitMQ of common.queues.rabbitmq: of the configuration
(TASKER_CONFIG_PATH, TASKER_CONFIG_ROOT or --config-file), with RABBITMQ_URL.
Only migrate asks an orchestrator, and concerns every event source. Daemons
declare what they need by themselves. See docs/operate/modes.md.`,
		commands: []command{
			a.brokerMigrate(), a.brokerDrain(),
			a.onBroker(command{use: "topology", short: "List the exchanges and queues that the configuration wants",
				long: "Lists the durable exchanges and queues that the configuration wants. It asks no\nbroker."}, a.brokerTopology),
			a.onBroker(command{use: "init", short: "Declare the exchanges and queues that the broker lacks",
				long: `Declares the exchanges and queues that the broker lacks. One that exists with
other properties is not changed: the command ends with exit code 4 and names it
and the difference.`}, a.brokerInit),
			a.onBroker(command{use: "status", short: "Show what the broker has of them",
				long: `Shows which of the exchanges and queues the broker has, and what waits in the
queues. Ends with exit code 1 if any is missing, or is something else than the
configuration wants.`}, a.brokerStatus),
		},
	}
}

// onBroker completes the description of a command that works on a broker, under a deadline.
func (a *app) onBroker(d command, run func(context.Context, amqp.Config) error) command {
	var path string
	d.flags = all(d.flags, opt(&path, "config-file", "daemon configuration `file` to take the broker from"))
	d.local = func(ctx context.Context, _ []string) error {
		loaded, err := config.Load(config.Options{Context: config.ContextCommon, Path: path, LookupEnv: a.env})
		if err != nil {
			return fmt.Errorf("find the broker: %w", err)
		}
		a.logf(1, "broker %s", loaded.Common.Queues.RabbitMQ.URL)
		ctx, cancel := a.within(ctx, brokerTimeout)
		defer cancel()
		return brokerError(run(ctx, amqp.Configure(loaded.Common)))
	}
	return d
}

// brokerError gives the errors of a broker their exit codes.
func brokerError(err error) error {
	var refused *amqp091.Error
	switch {
	case errors.As(err, &refused) && refused.Code == amqp091.PreconditionFailed:
		return coded{hinted{err, "delete it, or give it another name"}, exitConflict}
	case amqp.Reason(err) == telemetry.BrokerRefused:
		return coded{hinted{err, "see the user, the password, the virtual host and the rights in it (docs/operate/modes.md)"}, exitPermission}
	case errors.Is(err, amqp.ErrUnavailable):
		return coded{err, exitUnavailable}
	}
	return err
}

// boundTo says where the messages of a queue come from.
func boundTo(o *amqp.Object) string { return strings.TrimSpace(o.Bound + " " + o.Key) }

func (a *app) brokerTopology(_ context.Context, cfg amqp.Config) error {
	list := cfg.Topology.Objects()
	return a.emit(list, func() {
		listing(a, func(o *amqp.Object) facts { return facts{{"KIND", o.Kind}, {"NAME", o.Name}, {"BOUND TO", boundTo(o)}} })(list)
	})
}

func (a *app) brokerInit(ctx context.Context, cfg amqp.Config) error {
	if err := amqp.Declare(ctx, cfg); err != nil {
		return err
	}
	list := cfg.Topology.Objects()
	return a.emit(list, func() { a.printf("the broker has the %d exchanges and queues\n", len(list)) })
}

func (a *app) brokerStatus(ctx context.Context, cfg amqp.Config) error {
	list, err := amqp.Inspect(ctx, cfg)
	if err != nil {
		return err
	}
	missing, differing := wrongObjects(list)
	wrong := suffixed("not what the configuration wants: ", strings.Join(differing, "; "))
	if len(missing) > 0 {
		wrong = fmt.Sprintf("%d of %d are missing: tasker-ctl broker init declares them", len(missing), len(list))
	}
	return a.verdict(list, wrong == "", failure(wrong), func() { a.brokerTable(list) })
}

// wrongObjects are the names of those that are missing, and of those that differ with how.
func wrongObjects(list []amqp.Object) (missing, differing []string) {
	for _, o := range list {
		switch {
		case o.Found == nil:
			missing = append(missing, o.Name)
		case o.Differs != "":
			differing = append(differing, o.Name+": "+oneLine(o.Differs))
		}
	}
	return missing, differing
}

func (a *app) brokerTable(list []amqp.Object) {
	t := a.newTable("KIND", "NAME", "BOUND TO", "MESSAGES", "CONSUMERS")
	for i := range list {
		o := &list[i]
		name := cell{text: o.Name}
		if o.Differs != "" {
			name.style = red
		}
		switch {
		case o.Found == nil:
			t.row(o.Kind, o.Name, boundTo(o), cell{"missing", red}, "")
		case o.Kind == amqp.KindQueue:
			t.row(o.Kind, name, boundTo(o), o.Found.Messages, o.Found.Consumers)
		default:
			t.row(o.Kind, name, "", "", "")
		}
	}
	t.write(a.stdout)
}
