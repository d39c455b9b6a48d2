package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/enginetest"
)

// emit publishes events by name, as an apply would.
func emit(t *testing.T, e *enginetest.Engine, namespace string, names ...string) {
	t.Helper()
	e.DB.Exec(t, `insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome,
			name, version, step_name, fired_by, payload)
		select tasker.uuid_v7(), nextval('tasker.event_position'), tasker.uuid_v7(), tasker.uuid_v7(), clock_timestamp(), s.namespace_id, 0, 1, 1, n, '1.0', 's', 'h',
			jsonb_build_object('n', n)
		from unnest($2::text[]) with ordinality u(n, at) cross join tasker.namespaces s where s.name = $1 order by at`, namespace, names)
}

func eventNames(list []client.Event) string {
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	return strings.Join(names, " ")
}

// TestEventsOverTheAPI: consumers are created, read and advance, and lose their claimed
// events to others.
func TestEventsOverTheAPI(t *testing.T) {
	t.Parallel()
	c, e := operatedHouse(t)
	ctx := t.Context()
	emit(t, e, "shapes", "pay.a", "order.a", "pay.b")

	list, err := c.Events(ctx, client.EventListOptions{Namespace: "shapes", Name: "pay.*", Limit: 1})
	require.NoError(t, err)
	require.Equal(t, "pay.a", eventNames(list.Events))
	require.True(t, list.More)
	first := list.Events[0]
	require.JSONEq(t, `{"n": "pay.a"}`, string(first.Payload))
	require.Equal(t, "success shapes h s 1.0", strings.Join([]string{first.Metadata.Outcome, first.Metadata.Namespace, first.Metadata.FiredBy, first.Metadata.StepName, first.Version}, " "))
	list, err = c.Events(ctx, client.EventListOptions{Name: "pay.*", After: list.Next})
	require.NoError(t, err)
	require.Equal(t, "pay.b", eventNames(list.Events))
	list, err = c.Events(ctx, client.EventListOptions{TaskUUID: first.Metadata.TaskUUID})
	require.NoError(t, err)
	require.Len(t, list.Events, 1)

	now, err := c.Events(ctx, client.EventListOptions{FromNow: true})
	require.NoError(t, err)
	require.EqualValues(t, 3, now.Next)
	require.Empty(t, now.Events)

	made, err := c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "mail", Namespace: "shapes", Patterns: []string{"pay.*"}, Actor: "ana"})
	require.NoError(t, err)
	require.Equal(t, 2, made.Unread)
	require.NotNil(t, made.OldestUnreadAt)
	_, err = c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "mail", Namespace: "shapes"})
	require.True(t, client.IsConflict(err), err)
	_, err = c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "lost", Namespace: "nowhere"})
	require.True(t, client.IsNotFound(err), err)

	claimed, err := c.ClaimEvents(ctx, "mail", client.EventClaim{Worker: "m1"})
	require.NoError(t, err)
	require.Equal(t, "pay.a pay.b", eventNames(claimed.Events))
	_, err = c.ClaimEvents(ctx, "mail", client.EventClaim{Worker: "m2"})
	require.True(t, client.IsConflict(err), err)
	after, err := c.AckEvents(ctx, "mail", client.EventAck{Token: claimed.Token, Position: claimed.Events[0].Position, Release: true})
	require.NoError(t, err)
	require.Equal(t, 1, after.Unread)
	require.Nil(t, after.Holder)
	_, err = c.AckEvents(ctx, "mail", client.EventAck{Token: claimed.Token, Position: 3})
	require.True(t, client.IsConflict(err), err)

	moved, err := c.ResetEventConsumer(ctx, "mail", client.EventReset{To: client.EventsFromBeginning})
	require.NoError(t, err)
	require.Equal(t, 2, moved.Unread)
	moved, err = c.ResetEventConsumer(ctx, "mail", client.EventReset{To: "1"})
	require.NoError(t, err)
	require.EqualValues(t, 1, moved.Position)

	_, err = c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "second", Namespace: "shapes", From: client.EventsFromNow})
	require.NoError(t, err)
	_, err = c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "third", Namespace: "shapes"})
	require.True(t, client.IsConflict(err), "the limit is two: %v", err)
	all, err := c.EventConsumers(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.EqualValues(t, 3, all[1].Position)
	one, err := c.EventConsumer(ctx, "second")
	require.NoError(t, err)
	require.Equal(t, all[1], *one)
	_, err = c.DeleteEventConsumer(ctx, "second", client.Why{Actor: "ana", Reason: "unused"})
	require.NoError(t, err)
	for _, missing := range []error{
		second(c.EventConsumer(ctx, "second")), second(c.DeleteEventConsumer(ctx, "second", client.Why{})),
		second(c.ResetEventConsumer(ctx, "second", client.EventReset{To: "0"})), second(c.ClaimEvents(ctx, "second", client.EventClaim{Worker: "w"})),
		second(c.AckEvents(ctx, "second", client.EventAck{})),
	} {
		require.True(t, client.IsNotFound(missing), missing)
		require.ErrorContains(t, missing, "second")
	}
	require.Equal(t, "ana create_event_consumer, ana delete_event_consumer", e.DB.QueryString(t,
		`select string_agg(actor || ' ' || action, ', ' order by at) from tasker.operator_actions where actor = 'ana'`))
}

func second[T any](_ T, err error) error { return err }

func TestBadRequestsAboutEvents(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	ctx := t.Context()
	many := make([]string, domainevent.MaxPatterns+1)
	for name, err := range map[string]error{
		"limit":      second(c.Events(ctx, client.EventListOptions{Limit: 5000})),
		"a position": second(c.ResetEventConsumer(ctx, "x", client.EventReset{To: "-1"})),
		"UUID":       second(c.Events(ctx, client.EventListOptions{TaskUUID: "x"})),
		"a character that names of events do not have": second(c.Events(ctx, client.EventListOptions{Name: "a b"})),
		"lower case letters":                           second(c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "Mail!", Namespace: "shapes"})),
		"patterns must be at most":                     second(c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "m", Namespace: "shapes", Patterns: many})),
		"from must be":                                 second(c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "m", Namespace: "shapes", From: "tomorrow"})),
		"namespace must not be empty":                  second(c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "m"})),
		"worker must not be empty":                     second(c.ClaimEvents(ctx, "x", client.EventClaim{})),
		"limit must be between":                        second(c.ClaimEvents(ctx, "x", client.EventClaim{Worker: "w", Limit: 1001})),
		"lease_seconds must be between":                second(c.ClaimEvents(ctx, "x", client.EventClaim{Worker: "w", LeaseSeconds: 100_000})),
		"position must not be negative":                second(c.AckEvents(ctx, "x", client.EventAck{Position: -1})),
	} {
		var refusal *client.Error
		require.ErrorAs(t, err, &refusal, name)
		require.Equal(t, http.StatusBadRequest, refusal.Status, "%s: %v", name, err)
		require.ErrorContains(t, err, name)
	}
}
