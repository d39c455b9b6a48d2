package trial

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
)

// What the greedy principal asks of each orchestrator at once: more than its share of each.
const (
	greedyBatches = 24
	greedyStreams = 120
	greedyRound   = 10 * time.Second // after which it asks anew, as daemons come and go
)

// greed takes what it can get of the places that requests share, with a key of its own, until the context ends.
func (t *trial) greed(ctx context.Context) {
	var asked, refused, held atomic.Int64
	for ctx.Err() == nil {
		round, end := context.WithTimeout(ctx, greedyRound)
		var all conc.WaitGroup
		for _, base := range t.rig.Orchestrators() {
			for range greedyBatches {
				all.Go(func() { asked.Add(1); idleBatch(round, base) })
			}
			for range greedyStreams {
				all.Go(func() {
					asked.Add(1)
					switch status := idleStream(round, base); status {
					case http.StatusOK:
						held.Add(1)
					case http.StatusTooManyRequests:
						refused.Add(1)
					}
				})
			}
		}
		all.Wait()
		_ = lifecycle.Pause(round, greedyRound) // without an orchestrator there was nothing to hold
		end()
	}
	t.say("the greedy principal asked for %d places; of its streams %d were held and %d refused (429)", asked.Load(), held.Load(), refused.Load())
}

// idleBatch begins a batch whose body does not arrive.
func idleBatch(ctx context.Context, base string) {
	u, err := url.Parse(base)
	if err != nil {
		return
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "POST /v1/tasks/batch HTTP/1.1\r\nHost: %s\r\nX-API-Key: %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		u.Host, rig.GreedyKey)
	<-ctx.Done()
}

// idleStream holds a stream of events, and returns the status of the answer; 0: none.
func idleStream(ctx context.Context, base string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/events/stream", nil)
	if err != nil {
		return 0
	}
	r.Header.Set("X-API-Key", rig.GreedyKey)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		<-ctx.Done()
	}
	return response.StatusCode
}
