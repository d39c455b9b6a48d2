package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/tasker-go/tasker/client"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Order is a task to be submitted.
type Order struct {
	Key  string // idempotency key
	Flow Workflow
	Due  time.Duration // since the start of the run
}

// Orders spreads n tasks evenly over a time. The mix is dealt in hands of
// twenty, shuffled with the seed.
func Orders(seed uint64, n int, over time.Duration, flows []Workflow) []Order {
	rng := rand.New(rand.NewPCG(seed, 0x776f726b))
	var hand []Workflow
	orders := make([]Order, n)
	for i := range orders {
		if len(hand) == 0 {
			for _, w := range flows {
				for range w.Share {
					hand = append(hand, w)
				}
			}
			rng.Shuffle(len(hand), func(a, b int) { hand[a], hand[b] = hand[b], hand[a] })
		}
		orders[i] = Order{Key: fmt.Sprintf("chaos-%d-%d", seed, i), Flow: hand[0], Due: over * time.Duration(i) / time.Duration(n)}
		hand = hand[1:]
	}
	return orders
}

// Steadily are orders for tasks of one workflow, perSecond of them in every second.
func Steadily(label string, perSecond int, over time.Duration, flow Workflow) []Order {
	orders := AtOnce(label, perSecond*int(over/time.Second), flow)
	for i := range orders {
		orders[i].Due = time.Second * time.Duration(i) / time.Duration(perSecond)
	}
	return orders
}

// Accepted is an accepted order.
type Accepted struct {
	Order
	Task  uuid.UUID // Nil: a broker has accepted it as a job
	Tries int       // requests it took
}

// Job is an order that another program leaves in a broker.
type Job struct{ ID, Type, payload string }

// Text is the job as bridges read it.
func (j Job) Text() []byte {
	return fmt.Appendf(nil, `{"id": %q, "type": %q, "payload": %s}`, j.ID, j.Type, j.payload)
}

// postedEvery is how many orders there are for one that goes through the broker.
const postedEvery = 5

// Submitter orders tasks as a careful client does: over REST with an idempotency key, repeatedly
// until an orchestrator has accepted; and through a broker as jobs, repeatedly until it has
// confirmed.
type Submitter struct {
	// URLs of the orchestrators as of now.
	URLs    func() []string
	Clients int    // default 32
	Key     string // API key; empty: without credentials
	// Post leaves a job in the broker; nil: all orders go over REST.
	Post func(ctx context.Context, job Job) error

	accepted atomic.Int64
	tries    atomic.Int64
}

const (
	requestTimeout = 3 * time.Second
	retryAfter     = 100 * time.Millisecond
)

// Accepted is the number of accepted orders so far.
func (s *Submitter) Accepted() int { return int(s.accepted.Load()) }

// Tries is the number of requests so far.
func (s *Submitter) Tries() int { return int(s.tries.Load()) }

// Run submits the orders, each when it is due, and returns when all are accepted. An
// answer that an order is invalid is an error.
func (s *Submitter) Run(ctx context.Context, start time.Time, orders []Order) ([]Accepted, error) {
	accepted := make([]Accepted, len(orders))
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 5 * time.Second}}
	defer web.CloseIdleConnections()
	for range cmp.Or(s.Clients, 32) {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(orders) {
					return nil
				}
				if err := lifecycle.Pause(ctx, time.Until(start.Add(orders[i].Due))); err != nil {
					return err
				}
				var err error
				order := func(ctx context.Context, o Order) (uuid.UUID, error) { return s.request(ctx, web, o) }
				if s.Post != nil && i%postedEvery == 0 {
					order = s.post
				}
				if accepted[i], err = s.submit(ctx, orders[i], order); err != nil {
					return err
				}
				s.accepted.Add(1)
			}
		})
	}
	return accepted, group.Wait()
}

// submit orders until that is accepted.
func (s *Submitter) submit(ctx context.Context, o Order, order func(ctx context.Context, o Order) (uuid.UUID, error)) (Accepted, error) {
	for tries := 1; ; tries++ {
		s.tries.Add(1)
		id, err := order(ctx, o)
		if err == nil {
			return Accepted{Order: o, Task: id, Tries: tries}, nil
		}
		if !worthRepeating(err) {
			return Accepted{}, fmt.Errorf("submit %s (%s): %w", o.Key, o.Flow.Name, err)
		}
		if ctxErr := lifecycle.Pause(ctx, retryAfter+rand.N(retryAfter)); ctxErr != nil {
			return Accepted{}, fmt.Errorf("submit %s: %w (last answer: %w)", o.Key, ctxErr, err)
		}
	}
}

// payload is the context of an order's task.
func (o Order) payload() string {
	return `{"key":"` + o.Key + `","shard":"` + o.Key[len(o.Key)-1:] + `"}`
}

// post leaves the order in the broker. The id of its task is not known.
func (s *Submitter) post(ctx context.Context, o Order) (uuid.UUID, error) {
	return uuid.Nil, s.Post(ctx, Job{o.Key, o.Flow.Name, o.payload()})
}

func (s *Submitter) request(ctx context.Context, web *http.Client, o Order) (uuid.UUID, error) {
	return attempt(ctx, web, s.URLs(), s.Key, client.TaskRequest{Name: o.Flow.Name, Namespace: Namespace, Version: Version, IdempotencyKey: o.Key,
		Context: json.RawMessage(o.payload()), Initiator: "chaos", SourceSystem: "chaos", Reason: "chaos test"})
}

// attempt sends the order to one of the orchestrators. Conflict means that an earlier
// request was accepted although its answer never arrived.
func attempt(ctx context.Context, web *http.Client, urls []string, key string, r client.TaskRequest) (uuid.UUID, error) {
	if len(urls) == 0 {
		return uuid.Nil, &client.Error{Status: http.StatusServiceUnavailable, Message: "no orchestrator runs"}
	}
	c := client.New(client.Config{BaseURL: urls[rand.IntN(len(urls))], APIKey: key, Timeout: requestTimeout, MaxRetries: -1, HTTP: web})
	task, err := c.CreateTask(ctx, r)
	var told *client.Error
	switch {
	case err == nil:
		return uuid.Parse(task.TaskUUID)
	case errors.As(err, &told) && told.Status == http.StatusConflict && told.TaskUUID != "":
		return uuid.Parse(told.TaskUUID)
	}
	return uuid.Nil, err
}

// worthRepeating: no answer, or one with Retry-After.
func worthRepeating(err error) bool {
	var told *client.Error
	if !errors.As(err, &told) {
		return true
	}
	return told.Status >= http.StatusInternalServerError || told.Status == http.StatusTooManyRequests || told.Status == http.StatusRequestTimeout
}

// AtOnce are orders for n tasks of one workflow, all of them due now.
func AtOnce(label string, n int, flow Workflow) []Order {
	orders := make([]Order, n)
	for i := range orders {
		orders[i] = Order{Key: fmt.Sprintf("%s-%d", label, i), Flow: flow}
	}
	return orders
}
