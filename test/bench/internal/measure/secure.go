package measure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/test/bench/internal/rig"
)

const (
	secureRounds = 24
	// secureSlices are the rounds of requests: many short ones, since what disturbs one often lasts
	// for seconds and then meets all fleets.
	secureSlices = 96
	// secureClients send requests at once; secureBulk is how many tasks one of them has.
	secureClients, secureBulk = 16, 250
	// secureTasks are what a fleet works off in a round.
	secureTasks = 40_000
)

// protections are compared with the first.
var protections = []variant{
	{label: "neither", fleet: rig.FleetOptions{Protection: rig.Open}},
	{key: "token", label: "JWT", fleet: rig.FleetOptions{Protection: rig.Token}},
	{key: "key", label: "API key", fleet: rig.FleetOptions{Protection: rig.Key}},
	{key: "tls", label: "JWT and TLS", fleet: rig.FleetOptions{Protection: rig.TokenAndTLS}},
}

// secure compares fleets whose APIs want credentials, and TLS, with one that does not.
func (b *Bench) secure(ctx context.Context) error {
	c := b.newComparison("secure", "What credentials and TLS cost", secureSlices, protections)
	c.rates.Notes = append(c.rates.Notes, fmt.Sprintf("%d keep-alive connections, which send requests for %s in a round; a request in bulk has %d tasks. No worker runs but for the last rows, where %d tasks are created in bulk and worked off in each of %d rounds.",
		secureClients, b.Sizes.Secure, secureBulk, secureTasks, secureRounds))
	ways := []way{
		{"single", "POST /v1/tasks", (*Bench).singleRate, 0},
		{"bulk", "POST /v1/tasks/batch, tasks", (*Bench).bulkRate, 0},
		{"get", "GET /v1/tasks/{uuid}", (*Bench).getRate, 0},
	}
	if err := c.measure(ctx, ways, 0); err != nil {
		return err
	}
	return c.measure(ctx, []way{{"fleet", "tasks created in bulk and run", fleetRate(secureTasks), secureRounds}}, 1)
}

func (b *Bench) singleRate(ctx context.Context, s *ours) (float64, error) {
	return b.requests(ctx, s, func(w *load.Wire) (int, error) {
		_, err := s.creator.One(w)
		return 1, err
	})
}

func (b *Bench) bulkRate(ctx context.Context, s *ours) (float64, error) {
	return b.requests(ctx, s, func(w *load.Wire) (int, error) { return secureBulk, s.creator.Batch(w, secureBulk) })
}

func (b *Bench) getRate(ctx context.Context, s *ours) (float64, error) {
	wire, err := load.Dial(ctx, s.server())
	if err != nil {
		return 0, err
	}
	defer wire.Close()
	id, err := s.creator.One(wire)
	if err != nil {
		return 0, err
	}
	return b.requests(ctx, s, func(w *load.Wire) (int, error) {
		status, answer, err := w.Get("/v1/tasks/" + id)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("read a task: status %d: %.300s", status, answer)
		}
		return 1, err
	})
}

// requests has clients send requests for a while and returns what they did per second.
func (b *Bench) requests(ctx context.Context, s *ours, one func(*load.Wire) (int, error)) (float64, error) {
	done, errs := make([]int, secureClients), make([]error, secureClients)
	wires := make([]*load.Wire, secureClients)
	for i := range wires {
		wire, err := load.Dial(ctx, s.server())
		if err != nil {
			return 0, err
		}
		defer wire.Close()
		wires[i] = wire
	}
	begin := time.Now()
	var wg sync.WaitGroup
	for i, wire := range wires {
		wg.Go(func() {
			for time.Since(begin) < b.Sizes.Secure && errs[i] == nil && ctx.Err() == nil {
				n, err := one(wire)
				done[i], errs[i] = done[i]+n, err
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range done {
		sum += n
	}
	return float64(sum) / time.Since(begin).Seconds(), errors.Join(errs...)
}
