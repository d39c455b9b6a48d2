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
	// allTracesPart divides the rounds where every trace is sent: that costs much, and has no goal.
	allTracesPart = 2
	// telemetryTasks are what a fleet works off in a round.
	telemetryTasks = 40_000
	// scrapeEvery is three times as often as deploy/prometheus has it.
	scrapeEvery = 5 * time.Second
)

// telemetry compares fleets that are observed with some that are not. Metrics are always
// counted; what can be had without is scraping them.
func (b *Bench) telemetry(ctx context.Context) error {
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })) // all it does
	defer sink.Close()
	for _, of := range []struct {
		title, key, label string
		ratio             float64
		part              int
	}{
		{"What telemetry of production costs", "production", "1 % of the traces, and metrics scraped every 5 s", .01, 1},
		{"What all traces cost", "all", "every trace, and metrics scraped every 5 s", 1, allTracesPart},
	} {
		toml := fmt.Sprintf("[common.telemetry.tracing]\nenabled = true\nendpoint = %q\nsample_ratio = %g\n", sink.URL, of.ratio)
		c := b.newComparison("telemetry", of.title, secureSlices/of.part, []variant{{label: "none"},
			{key: of.key, label: of.label, fleet: rig.FleetOptions{OrchestratorConfig: toml, WorkerConfig: toml}, beside: scraper()}})
		c.rates.Notes = append(c.rates.Notes, fmt.Sprintf("%d keep-alive connections create tasks one by one for %s in a round; in bulk, %d are created and worked off in each of %d rounds. "+
			"The collector of the spans reads and drops them, on the same machine.", secureClients, b.Sizes.Secure, telemetryTasks, telemetryRounds/of.part))
		if err := c.measure(ctx, []way{
			{"single", "tasks created one by one and run", (*Bench).runRate, 0},
			{"fleet", "tasks created in bulk and run", fleetRate(telemetryTasks), telemetryRounds / of.part},
		}, 1); err != nil {
			return err
		}
	}
	return nil
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
