package daemon

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/brokertest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/workflow"
)

// TestTheBridgeFromRabbitMQ: messages of another program become tasks where the bridge is
// enabled, though signals take another way.
func TestTheBridgeFromRabbitMQ(t *testing.T) {
	t.Parallel()
	host, db := brokertest.New(t), enginetest.Migrated(t)
	o, err := newOrchestrator(t.Context(), loadToo(t, db, fmt.Sprintf("[common.queues.rabbitmq]\nurl = %q\nnamespace = \"their\"\nqueues = [\"faxes\"]\n"+
		"[orchestration.bridge.rabbitmq_queue]\nenabled = true\n", host.URL)), nil, zap.NewNop())
	require.NoError(t, err)
	_, err = o.engine.RegisterTaskType(t.Context(), &workflow.Template{Namespace: "office", Name: "FAX", Version: "1.0.0",
		Steps: []workflow.StepTemplate{{Name: "run", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: "FAX"}}}},
		orchestration.Why{Actor: "test", Reason: "test"})
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.WithoutCancel(t.Context()))) }()
	require.Len(t, o.loops(), 4)
	conn := host.Connect(t)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { // the bridge declares the queue
		ch, err := conn.Channel()
		require.NoError(t, err)
		_, err = ch.QueueDeclarePassive("their.faxes", true, false, false, false, nil)
		return err == nil, fmt.Sprint(err)
	})
	ch, err := conn.Channel()
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind("their.faxes", "faxes", "their.direct", false, nil)) // which the bridge may be about to do
	require.NoError(t, ch.PublishWithContext(t.Context(), "their.direct", "faxes", true, false, amqp091.Publishing{Body: []byte(`{"id":"a","type":"FAX","payload":{"to":"b"}}`)}))
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		n := db.QueryInt(t, `select count(*) from tasker.v_tasks where namespace = 'office' and context = '{"to":"b"}'`)
		return n == 1, fmt.Sprintf("%d tasks", n)
	})
}

// TestTheBridgeToRabbitMQ: events of the namespaces reach the exchange, which is declared.
func TestTheBridgeToRabbitMQ(t *testing.T) {
	t.Parallel()
	host, db := brokertest.New(t), enginetest.Migrated(t)
	o, err := newOrchestrator(t.Context(), loadToo(t, db, fmt.Sprintf("[common.queues.rabbitmq]\nurl = %q\n"+
		"[orchestration.bridge.rabbitmq_events]\nenabled = true\nnamespaces = [\"office\", \"shop\"]\nexchange = \"their.events\"\nmandatory = true\n", host.URL)), nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.WithoutCancel(t.Context()))) }()
	require.Len(t, o.loops(), 5)
	db.Exec(t, `insert into tasker.namespaces (name) values ('office'), ('shop'), ('yard')`)
	db.Exec(t, `insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome, name, version, fired_by, payload)
		select tasker.uuid_v7(), nextval('tasker.event_position'), tasker.uuid_v7(), tasker.uuid_v7(), now(), namespace_id, 0, 1, 1, 'door.open', '1.0', 'h', '{}' from tasker.namespaces`)
	conn := host.Connect(t)
	var ch *amqp091.Channel
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		ch, err = conn.Channel()
		require.NoError(t, err)
		err = ch.ExchangeDeclarePassive("their.events", "topic", true, false, false, false, nil)
		return err == nil, fmt.Sprint(err)
	})
	_, err = ch.QueueDeclare("doors", true, false, false, false, nil)
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind("doors", "*.door.*", "their.events", false, nil))
	received, err := ch.Consume("doors", "", true, false, false, false, nil)
	require.NoError(t, err)
	seen := map[string]bool{}
	for len(seen) < 2 {
		select {
		case d := <-received:
			seen[d.RoutingKey] = true
		case <-time.After(30 * time.Second):
			require.Fail(t, "no event", "%v", seen)
		}
	}
	require.Equal(t, map[string]bool{"office.door.open": true, "shop.door.open": true}, seen)
}
