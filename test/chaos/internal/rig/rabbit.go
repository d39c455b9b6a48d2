package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
	"github.com/tasker-go/tasker/test/fleet"
)

// rabbit is a node of RabbitMQ.
type rabbit struct {
	host *brokertest.Host
	at   string // host and port
}

func newRabbit(ctx context.Context) (carrier, error) {
	host, err := brokertest.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("start RabbitMQ: %w", err)
	}
	u, err := url.Parse(host.URL)
	if err != nil {
		return nil, errors.Join(errors.New("read the address of RabbitMQ: it is no URL"), host.Close())
	}
	return rabbit{host, u.Host}, nil
}

func (r rabbit) address() string { return r.at }

const jobsKey = "jobs"

func (r rabbit) config(kind fleet.Kind, address string) string {
	c := fmt.Sprintf("[common.queues.rabbitmq]\nurl = \"amqp://guest:guest@%s/\"\nqueues = [%q]\n", address, jobsKey)
	if kind == fleet.Orchestrator {
		c += fmt.Sprintf("[orchestration.bridge.rabbitmq_queue]\nenabled = true\nnamespace = %q\n", workload.Namespace)
	}
	return c
}

// postTimeout is when another program tries again.
const postTimeout = 3 * time.Second

// post publishes a persistent message, and waits until the broker has confirmed that it is in a
// queue.
func (r rabbit) post(ctx context.Context, job workload.Job) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	// No call of the library is bounded, but by the end of its connection.
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.address())
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	conn, err := amqp091.DialConfig(r.host.URL, amqp091.Config{Dial: func(string, string) (net.Conn, error) { return raw, nil }})
	if err != nil {
		_ = raw.Close()
		return err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return err
	}
	returned := ch.NotifyReturn(make(chan amqp091.Return, 1))
	confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, "tasker.direct", jobsKey, true, false,
		amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: job.Text()})
	if err != nil {
		return err
	}
	taken, err := confirmation.WaitContext(ctx)
	if err != nil {
		return err
	}
	select {
	case <-returned: // before the confirmation
		return errors.New("no queue takes the job")
	default:
	}
	if !taken {
		return errors.New("the broker refuses the job")
	}
	return nil
}

// forget deletes all but the queues of listeners, which belong to their connections.
func (r rabbit) forget(ctx context.Context) error {
	var errs []error
	for _, exchange := range []string{"tasker.direct", "tasker.delay", "tasker.dlx"} {
		errs = append(errs, r.host.Delete(ctx, "exchanges", exchange))
	}
	for _, queue := range []string{"tasker." + jobsKey, "tasker.retry." + jobsKey, "tasker.dlq"} {
		errs = append(errs, r.host.Delete(ctx, "queues", queue))
	}
	return errors.Join(errs...)
}

func (r rabbit) kill() error {
	r.host.Kill()
	return nil
}

func (r rabbit) signal(s syscall.Signal) error                { return r.host.Signal(s) }
func (r rabbit) start(ctx context.Context) error              { return r.host.Restart(ctx) }
func (r rabbit) clear(ctx context.Context) error              { return r.host.Wipe(ctx) }
func (r rabbit) starve(ctx context.Context, short bool) error { return r.host.Starve(ctx, short) }
func (r rabbit) fill(ctx context.Context, full bool) error    { return r.host.FillDisk(ctx, full) }
func (r rabbit) close() error                                 { return r.host.Close() }
