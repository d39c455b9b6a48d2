package amqp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/signal/amqp"
	"github.com/tasker-go/tasker/signal"
)

// TestRemove deletes all that a fleet has declared, delayed signals as well, and no message.
func TestRemove(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"classic", "quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			host := brokertest.New(t)
			cfg := configured(t, "[common.queues.rabbitmq]\nqueues = [\"high\", \"low\"]\nqueue_type = \""+kind+"\"\n")
			cfg.URL = host.URL
			tr := transport(t, cfg)
			require.NoError(t, tr.SendAfter(bounded(t), time.Hour, []signal.Signal{control}))
			ch := host.Channel(t)
			require.NoError(t, ch.Confirm(false))
			confirmed, err := ch.PublishWithDeferredConfirm("tasker.direct", "high", true, false, amqp091.Publishing{Body: []byte("{}")})
			require.NoError(t, err)
			require.True(t, confirmed.Wait())
			received, err := ch.Consume("tasker.low", "consumer", false, false, false, false, nil)
			require.NoError(t, err)

			left, err := amqp.Remove(bounded(t), cfg)
			require.NoError(t, err)
			var names []string
			for _, o := range left {
				require.NotEmpty(t, o.Differs)
				names = append(names, o.Name)
			}
			require.ElementsMatch(t, []string{"tasker.high", "tasker.low"}, names, "the exchanges stay with them")
			require.NoError(t, ch.Cancel("consumer", false))
			for range received { // until the consumer has ended
			}
			_, err = ch.QueuePurge("tasker.high", false)
			require.NoError(t, err)
			left, err = amqp.Remove(bounded(t), cfg)
			require.NoError(t, err)
			require.Empty(t, left)
			for _, what := range []string{"queues", "exchanges"} {
				var list []struct{ Name string }
				host.Call(t, http.MethodGet, "/"+what+"/%s", nil, &list)
				for _, o := range list {
					require.True(t, o.Name == "" || strings.HasPrefix(o.Name, "amq."), o.Name)
				}
			}
		})
	}
}

// TestInspectShowsWhatDiffers and leaves it as it is.
func TestInspectShowsWhatDiffers(t *testing.T) {
	t.Parallel()
	host := brokertest.New(t)
	cfg := configured(t, "[common.queues.rabbitmq]\nqueues = [\"high\"]\n")
	cfg.URL = host.URL
	host.Call(t, http.MethodPut, "/queues/%s/tasker.high", map[string]any{"durable": true, "arguments": map[string]any{"x-max-length": 7}}, nil)
	host.Call(t, http.MethodPut, "/exchanges/%s/tasker.delay", map[string]any{"durable": true, "type": "topic"}, nil)
	for range 2 {
		list, err := amqp.Inspect(bounded(t), cfg)
		require.NoError(t, err)
		differs := map[string]string{}
		for _, o := range list {
			require.Equal(t, o.Name == "tasker.high" || o.Name == "tasker.delay", o.Found != nil, o.Name)
			if o.Differs != "" {
				differs[o.Name] = o.Differs
			}
		}
		require.Len(t, differs, 2)
		require.Contains(t, differs["tasker.high"], "x-dead-letter-exchange")
		require.Contains(t, differs["tasker.delay"], "type")
	}
}
