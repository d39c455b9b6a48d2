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

const (
	telemetryRounds = 48
	// telemetryTasks are what a fleet works off in a round.
	telemetryTasks = 40_000
	// scrapeEvery is three times as often as deploy/prometheus has it.
	scrapeEvery = 5 * time.Second
)

// telemetry compares fleets that are observed with one that is not. Metrics are always
// counted; what can be had without is scraping them.
func (b *Bench) telemetry(ctx context.Context) error {
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })) // all it does
	defer sink.Close()
	traced := func(ratio float64) rig.FleetOptions {
		toml := fmt.Sprintf("[common.telemetry.tracing]\nenabled = true\nendpoint = %q\nsample_ratio = %g\n", sink.URL, ratio)
		return rig.FleetOptions{OrchestratorConfig: toml, WorkerConfig: toml}
	}
	c := b.newComparison("telemetry", "What telemetry costs", secureSlices, []variant{
		{label: "none"},
		{key: "scraped", label: "metrics scraped every 5 s", beside: scraper()},
		{key: "production", label: "1 % of the traces, and metrics scraped every 5 s", fleet: traced(.01), beside: scraper()},
		{key: "all", label: "every trace", fleet: traced(1)},
	})
	c.rates.Notes = append(c.rates.Notes, fmt.Sprintf("%d keep-alive connections create tasks one by one for %s in a round; in bulk, %d are created and worked off in each of %d rounds. "+
		"The collector of the spans reads and drops them, on the same machine.", secureClients, b.Sizes.Secure, telemetryTasks, telemetryRounds))
	return c.measure(ctx, []way{
		{"single", "tasks created one by one and run", (*Bench).runRate, 0},
		{"fleet", "tasks created in bulk and run", fleetRate(telemetryTasks), telemetryRounds},
	}, 1)
}

// scraper has the metrics of a fleet read as a Prometheus reads them, in the time of its rounds.
func scraper() func(context.Context, *ours) {
	waited := scrapeEvery / 2
	return func(ctx context.Context, s *ours) {
		for {
			begin := time.Now()
			if wait(ctx, scrapeEvery-waited) != nil {
				waited += time.Since(begin)
				return
			}
			_, _ = rig.Scrape(ctx, slices.Concat(s.Orchestrators, s.Workers)) // the end of the round may cut it off
			waited = 0
		}
	}
}

// runRate is that of creating tasks one by one while they are worked off.
func (b *Bench) runRate(ctx context.Context, s *ours) (float64, error) {
	begin := time.Now()
	rate, err := b.singleRate(ctx, s)
	tasks := rate * time.Since(begin).Seconds()
	if err == nil {
		err = s.drained(ctx)
	}
	return tasks / time.Since(begin).Seconds(), err
}
