package main

import (
	"net/http"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/brokertest"
)

// TestStagesOfAMove: each fleet is at one stage, and the next step names those that it is for.
func TestStagesOfAMove(t *testing.T) {
	t.Parallel()
	old, moved := client.Replica{EventSource: "notify"}, client.Replica{EventSource: "amqp"}
	both, back := client.Replica{EventSource: "amqp", MovingFrom: "notify"}, client.Replica{EventSource: "notify", MovingFrom: "amqp"}
	deaf, silent := client.Replica{EventSource: "amqp", MovingFrom: "notify", Unheard: []string{"amqp"}}, client.Replica{}
	for name, tt := range map[string]struct {
		fleet       []client.Replica
		stage, next string
		apart       int
	}{
		"nothing":       {nil, stageBefore, "no daemon lives", 0},
		"not begun":     {[]client.Replica{old, old}, stageBefore, `event_source = "amqp" and moving_from = "notify": a, b`, 0},
		"first restart": {[]client.Replica{both, old}, stageBefore, `moving_from = "notify": b`, 0},
		"not yet heard": {[]client.Replica{deaf, old}, stageBefore, `moving_from = "notify": b`, 0},
		"an old one":    {[]client.Replica{both, silent}, stageBefore, `moving_from = "notify": b`, 0},
		"both":          {[]client.Replica{both, back}, stageBoth, "without moving_from: a, b", 0},
		"unheard":       {[]client.Replica{both, deaf}, stageBoth, "not known to arrive yet at b", 0},
		"second":        {[]client.Replica{moved, both}, stageBoth, "without moving_from: b", 0},
		"only":          {[]client.Replica{moved, moved}, stageOnly, "none: all daemons use amqp alone", 0},
		"apart":         {[]client.Replica{moved, old, both}, stageBefore, `moving_from = "notify": b`, 1},
	} {
		var fleet client.Fleet
		for i, r := range tt.fleet {
			r.ID, r.Live = string(rune('a'+i)), true
			fleet.Replicas = append(fleet.Replicas, r)
		}
		fleet.Replicas = append(fleet.Replicas, client.Replica{ID: "gone", EventSource: "wal"})
		m := moveOf(&fleet, "amqp")
		require.Equal(t, tt.stage, m.Stage, name)
		require.Contains(t, m.Next, tt.next, name)
		require.Len(t, m.Apart, tt.apart, name)
		require.Len(t, m.Daemons, len(tt.fleet), name)
		require.Equal(t, tt.stage == stageOnly, len(tt.fleet) > 0 && len(m.behind[stageOnly]) == 0, name)
		require.Equal(t, tt.stage != stageBefore && name != "unheard", len(tt.fleet) > 0 && len(m.behind[stageBoth]) == 0, name)
	}
}

// TestBrokerDrain: the command waits for queues that hold messages, ready or not acknowledged, and
// removes the topology only where nothing is lost with it.
func TestBrokerDrain(t *testing.T) {
	t.Parallel()
	host := brokertest.New(t)
	s := newSession(t)
	s.env["RABBITMQ_URL"] = host.URL
	run := func(args ...string) outcome {
		return s.run(t.Context(), "", append([]string{"broker", "drain", "--config-file", "testdata/broker.toml"}, args...)...)
	}
	exists := func() bool {
		var list []struct{ Name string }
		host.Call(t, http.MethodGet, "/queues/%s", nil, &list)
		return len(list) > 0
	}
	require.Equal(t, exitOK, s.run(t.Context(), "", "broker", "init", "--config-file", "testdata/broker.toml").code)
	ch := host.Channel(t)
	require.NoError(t, ch.Confirm(false))
	publish := func(exchange, key string) {
		t.Helper()
		confirmed, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp091.Publishing{Body: []byte("{}")})
		require.NoError(t, err)
		require.True(t, confirmed.Wait())
	}
	wait := func() { <-time.After(300 * time.Millisecond) } // takes time: as the command would wait
	s.beforePause = wait
	publish("tasks.direct", "high")
	got := run("--timeout", "15s")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "not drained: tasks.high has 1 messages and 0 consumers")

	deliveries, err := ch.Consume("tasks.high", "bridge", false, false, false, false, nil)
	require.NoError(t, err)
	first := <-deliveries
	got = run("--timeout", "15s", "--remove")
	require.Equal(t, exitFailed, got.code, got.stderr)
	require.Contains(t, got.stderr, "not drained: tasks.high has 0 messages and 1 consumers", "the message is not acknowledged")
	require.True(t, exists())
	s.beforePause = func() { // while the command waits
		s.beforePause = wait
		require.NoError(t, first.Ack(false))
		require.NoError(t, ch.Cancel("bridge", false))
	}
	got = run()
	require.Equal(t, exitOK, got.code, got.stderr)
	require.Contains(t, got.stderr, "tasks.high has 0 messages and 1 consumers", "its progress")

	publish("tasks.dlx", "")
	got = run("--remove")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "nothing was removed: tasks.dlq holds 1 dead letters")
	_, err = ch.QueuePurge("tasks.dlq", false)
	require.NoError(t, err)

	mine, err := ch.QueueDeclare("mine", false, true, true, false, nil) // as a listener has one
	require.NoError(t, err)
	require.NoError(t, ch.QueueBind(mine.Name, "signal.x", "tasks.direct", false, nil))
	got = run("--remove")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "not all was removed: tasks.direct: PRECONDITION_FAILED")
	_, err = ch.QueueDelete(mine.Name, false, false, false)
	require.NoError(t, err)
	require.Equal(t, outcome{stdout: "the exchanges and queues are removed\n"}, run("--remove"))
	require.False(t, exists())
	require.Equal(t, exitOK, run("--remove").code, "again")
}
