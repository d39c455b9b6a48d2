package load

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// SleepHandler sleeps for as long as the field ms of the context says.
const SleepHandler = "bench.sleep"

// Sleeping is the workflow of one step that does; the times of its handlers are learned by ms.
var Sleeping = Workflow{Name: "sleep", Namespace: Namespace, Steps: 1}

// Arrival is a task to create: when, counted from the beginning, how long its handler sleeps,
// and whose it is.
type Arrival struct {
	At, Takes time.Duration
	Tenant    string
	Priority  int
}

// Mix draws the times of handlers; Mean is their mean.
type Mix struct {
	Key, Label string
	Mean       time.Duration
	draw       func(r *rand.Rand) time.Duration
}

// Mixes are those of which the order matters: three kinds of tasks, and times with a heavy
// tail (bounded Pareto, of 20 ms to 20 s, with the exponent 1.1).
func Mixes() []Mix {
	const least, most, alpha = 0.020, 20.0, 1.1
	mean := math.Pow(least, alpha) / (1 - math.Pow(least/most, alpha)) * alpha / (alpha - 1) * (math.Pow(least, 1-alpha) - math.Pow(most, 1-alpha))
	return []Mix{
		{"three", "70 % of 50 ms, 20 % of 500 ms, 10 % of 2 s", 335 * time.Millisecond, func(r *rand.Rand) time.Duration {
			switch x := r.Float64(); {
			case x < 0.7:
				return 50 * time.Millisecond
			case x < 0.9:
				return 500 * time.Millisecond
			}
			return 2 * time.Second
		}},
		{"tailed", "Pareto 1.1 from 20 ms to 20 s", time.Duration(mean * float64(time.Second)), func(r *rand.Rand) time.Duration {
			x := least / math.Pow(1-r.Float64()*(1-math.Pow(least/most, alpha)), 1/alpha)
			return time.Duration(x * float64(time.Second))
		}},
	}
}

// Arrivals draws a Poisson process: utilisation is the share of the permits that it needs.
// The same seed gives the same tasks at the same times.
func (m Mix) Arrivals(seed uint64, utilisation float64, permits int, lasting time.Duration) (list []Arrival) {
	r := rand.New(rand.NewPCG(seed, seed)) // #nosec G404 -- to be repeated
	gap := m.Mean.Seconds() / (utilisation * float64(permits))
	for at := 0.0; ; {
		at += r.ExpFloat64() * gap
		if at >= lasting.Seconds() {
			return list
		}
		list = append(list, Arrival{At: time.Duration(at * float64(time.Second)), Takes: m.draw(r)})
	}
}

// arriveEvery is how far apart requests are that create the tasks which have become due.
const arriveEvery = 20 * time.Millisecond

// Arrive creates Sleeping tasks at their times, with a reason to find them by. Their numbers
// begin with first: tasks of one reason and number are the same.
func Arrive(ctx context.Context, server Server, list []Arrival, reason string, first int) error {
	wire, err := Dial(ctx, server)
	if err != nil {
		return err
	}
	defer wire.Close()
	begin := time.Now()
	ticker := time.NewTicker(arriveEvery)
	defer ticker.Stop()
	for made := 0; made < len(list); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		body := []byte(`{"tasks":[`)
		begun := made
		for now := time.Since(begin); made < len(list) && list[made].At <= now; made++ {
			if made > begun {
				body = append(body, ',')
			}
			body = append(body, `{"name":"sleep","namespace":"`+Namespace+`","version":"1.0.0","context":{"no":`...)
			body = strconv.AppendInt(body, int64(first+made), 10)
			body = append(body, `,"for":"`+reason+`","ms":`...)
			body = strconv.AppendInt(body, list[made].Takes.Milliseconds(), 10)
			if tenant := list[made].Tenant; tenant != "" {
				body = append(body, `,"tenant":"`+tenant+`"`...)
			}
			body = append(body, `},"priority":`...)
			body = strconv.AppendInt(body, int64(list[made].Priority), 10)
			body = append(body, `,"initiator":"bench","source_system":"bench","reason":"`+reason+`"}`...)
		}
		if made == begun {
			continue
		}
		status, answer, err := wire.Post("/v1/tasks/batch", append(body, "]}"...))
		if err == nil && status >= http.StatusMultipleChoices {
			err = fmt.Errorf("status %d: %.300s", status, answer)
		}
		if err != nil {
			return fmt.Errorf("create %d tasks: %w", made-begun, err)
		}
	}
	return nil
}
