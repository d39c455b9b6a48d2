package measure

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/rig"
)

// telemetryTasks are what a fleet works off in a round.
const telemetryTasks = 150_000

// telemetry compares fleets that are observed with one that is not. Metrics are always
// counted; what can be had without is scraping them.
func (b *Bench) telemetry(ctx context.Context) error {
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })) // all it does
	defer sink.Close()
	traced := func(ratio float64) rig.FleetOptions {
		toml := fmt.Sprintf("[common.telemetry.tracing]\nenabled = true\nendpoint = %q\nsample_ratio = %g\n", sink.URL, ratio)
		return rig.FleetOptions{OrchestratorConfig: toml, WorkerConfig: toml}
	}
	c := b.newComparison("telemetry", "What telemetry costs", []variant{
		{label: "none"},
		{key: "scraped", label: "metrics scraped each second", beside: scraped},
		{key: "production", label: "1 % of the traces, and metrics scraped each second", fleet: traced(.01), beside: scraped},
		{key: "all", label: "every trace", fleet: traced(1)},
	})
	c.rates.Notes = append(c.rates.Notes, fmt.Sprintf("%d keep-alive connections create tasks one by one; in bulk, %d are created and worked off in a round. "+
		"The collector of the spans reads and drops them, on the same machine.", secureClients, telemetryTasks))
	return c.measure(ctx, []way{{"single", "tasks created one by one and run", runRate}, {"fleet", "tasks created in bulk and run", fleetRate(telemetryTasks)}}, 1)
}

// scraped has the metrics of a fleet read as a Prometheus reads them.
func scraped(ctx context.Context, s *ours) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		_, _ = rig.Scrape(ctx, slices.Concat(s.Orchestrators, s.Workers)) // the last one may be cut off
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// runRate is that of creating tasks one by one while they are worked off.
func runRate(b *Bench, ctx context.Context, s *ours) (float64, error) {
	begin := time.Now()
	rate, err := b.singleRate(ctx, s)
	tasks := rate * time.Since(begin).Seconds()
	if err == nil {
		err = s.drained(ctx)
	}
	return tasks / time.Since(begin).Seconds(), err
}
