package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/signal"
)

// TestModesOverABroker: PollingOnly does not use the broker.
func TestModesOverABroker(t *testing.T) {
	for _, mode := range []string{"EventDrivenOnly", "Hybrid"} {
		t.Run(mode, func(t *testing.T) {
			if mode != "EventDrivenOnly" {
				needs.All(t, "the other mode")
			}
			t.Parallel()
			host := brokertest.New(t)
			r := pairWith(t, mode, "", "TASKER_MESSAGING_BACKEND=rabbitmq", "RABBITMQ_URL="+host.URL)
			for _, p := range r.all { // until the listener is proven, a tight poll may be first
				pgtest.Eventually(t, time.Minute, func() (bool, string) {
					metrics := get(t, p.URL+"/metrics")
					return counted(metrics, "tasker_event_listener_active{") && sum(t, metrics, "tasker_polling_fallback_active{", "") == 0, metrics
				})
			}
			for _, s := range scenarios {
				t.Run(s.name, func(t *testing.T) {
					r.t = t
					s.run(t, r)
				})
			}
			r.t = t
			r.clean()
			for _, p := range r.all {
				metrics := get(t, p.URL+"/metrics")
				signalled, polled := sum(t, metrics, "tasker_found_total{", `by="listener"`), sum(t, metrics, "tasker_found_total{", `by="poller"`)
				all := sum(t, metrics, "tasker_found_total{", "")
				t.Logf("%s found %v by signals and %v by polls, of %v", p.Name, signalled, polled, all)
				require.Positive(t, signalled)
				require.LessOrEqual(t, polled, all/100)
			}
			pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
				list := host.Connections(t)
				return len(list) == 4, fmt.Sprintf("%d connections: want each daemon to send over one and to receive over one", len(list))
			})
		})
	}
}

// TestBrokerKilledDuringARun: work goes on by polls while there is no broker, and by signals
// again afterwards. It kills the node, so it is not parallel.
func TestBrokerKilledDuringARun(t *testing.T) {
	host := brokertest.New(t)
	r := pairWith(t, "Hybrid", "amqp", "RABBITMQ_URL="+host.URL)
	count := func(by string) (n float64) {
		for _, p := range r.all {
			n += sum(t, get(t, p.URL+"/metrics"), "tasker_found_total{", `by="`+by+`"`)
		}
		return n
	}
	done := submitting(t, r, 100, "before")
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n := r.db.QueryInt(t, `select count(*) from tasker.step_attempts`)
		return n > 20, fmt.Sprintf("%d attempts", n)
	})
	host.Kill()
	begin := time.Now()
	r.awaitAll(<-done)
	require.Equal(t, "complete", r.run("diamond", `{"even_number":6}`).Status, "created while there is no broker")
	require.Positive(t, count("poller"))
	without := time.Since(begin)

	host.Start(t)
	begin = time.Now()
	runs := 0
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		signalled, polled := count("listener"), count("poller")
		runs++
		require.Equal(t, "complete", r.run("diamond", fmt.Sprintf(`{"even_number":8,"run":"after-%d"}`, runs)).Status)
		return count("listener") > signalled && count("poller") == polled, get(t, r.all[1].URL+"/health/detailed")
	})
	t.Logf("the work was done %v after the end of the broker; signals were there %v after its return", without, time.Since(begin))
	r.clean()
}

// TestABackingOffStepComesBackThroughARetryQueue: while the step backs off, a signal waits in a
// queue of the broker, from which it returns to the listeners when the step is due.
func TestABackingOffStepComesBackThroughARetryQueue(t *testing.T) {
	t.Parallel()
	host := brokertest.New(t)
	r := pairWith(t, "EventDrivenOnly", "amqp", "RABBITMQ_URL="+host.URL)
	ch := host.Channel(t)
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind(q.Name, "signal."+string(signal.TopicDue), "tasker.direct", false, nil))
	heard, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	require.NoError(t, err)

	task := r.run("order_fulfillment", fmt.Sprintf(order, "tok_flaky", "retry-queue"))
	require.Equal(t, "complete", task.Status)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		select {
		case d := <-heard:
			deaths, _ := d.Headers["x-death"].([]any)
			if len(deaths) == 0 {
				continue // says that there is a new due time
			}
			from := deaths[0].(amqp091.Table)
			require.Equal(t, "expired", from["reason"])
			require.Regexp(t, `^tasker\.retry\.signals\.[0-9]+s$`, from["queue"])
			return
		case <-ctx.Done():
			require.Fail(t, "no signal came back from a retry queue")
		}
	}
}

// sum adds the series of a metric whose labels contain some text.
func sum(t *testing.T, metrics, name, label string) (total float64) {
	t.Helper()
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, name) || !strings.Contains(line, label) {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		require.NoError(t, err, line)
		total += n
	}
	return total
}
