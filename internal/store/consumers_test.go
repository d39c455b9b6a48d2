package store_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

var byAna = store.OperatorAction{Actor: "ana", Reason: "test", Action: "test"}

// emit publishes events by name, as an orchestrator would.
func emit(t testing.TB, db *pgtest.DB, namespace string, names ...string) {
	t.Helper()
	db.Exec(t, `insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome,
			name, version, step_name, fired_by, payload)
		select tasker.uuid_v7(), nextval('tasker.event_position'), tasker.uuid_v7(), tasker.uuid_v7(), clock_timestamp(), s.namespace_id, 0, 1, 1, n, '1.0', 's', 'h',
			jsonb_build_object('n', n)
		from unnest($2::text[]) with ordinality u(n, at) cross join tasker.namespaces s where s.name = $1 order by at`, namespace, names)
}

func consumer(t testing.TB, s *store.Store, name string, patterns ...string) {
	t.Helper()
	c, err := s.CreateEventConsumer(t.Context(), store.EventConsumer{Name: name, Namespace: "shop", Patterns: patterns}, store.EventPlace{}, upTo(100), byAna)
	require.NoError(t, err)
	require.Equal(t, name, c.Name)
}

func claimEvents(t testing.TB, s *store.Store, name string, limit int) store.ClaimedEvents {
	t.Helper()
	c, err := s.ClaimEvents(t.Context(), name, "w", limit, time.Minute)
	require.NoError(t, err)
	return c
}

func named(list []store.Event) string {
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	return strings.Join(names, " ")
}

// TestEventsThatAreCommittedDuringAClaimAreWhole: the function that claims sees more than the
// statement that calls it.
func TestEventsThatAreCommittedDuringAClaimAreWhole(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	consumer(t, s, "mail")
	emit(t, db, "shop", "before")
	held, err := db.Pool(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), `select from tasker.event_consumers where name = 'mail' for update`)
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := s.ClaimEvents(t.Context(), "mail", "w", 10, time.Minute)
		if assert.NoError(t, err) && assert.Equal(t, "before during", named(c.Events)) {
			assert.Equal(t, []int{0, 3}, []int{c.Events[0].Run, c.Events[1].Run})
		}
	})
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		return db.QueryBool(t, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`), "no claim waits"
	})
	emit(t, db, "shop", "during")
	db.Exec(t, `update tasker.domain_events set run = 3 where name = 'during'`)
	require.NoError(t, held.Commit(t.Context()))
	wg.Wait()
}

func TestConsumersReadInOrderAndOnce(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	consumer(t, s, "mail", "pay.*", "*.done")
	require.Empty(t, claimEvents(t, s, "mail", 10).Events)
	emit(t, db, "shop", "pay.a", "order.a", "pay.b", "order.done", "order.b")
	first := claimEvents(t, s, "mail", 2)
	require.Equal(t, "pay.a pay.b", named(first.Events))
	require.JSONEq(t, `{"n": "pay.a"}`, string(first.Events[0].Payload))
	require.Equal(t, "shop s h 1.0 success 1", fmt.Sprint(first.Events[0].Namespace, " ", first.Events[0].StepName, " ", first.Events[0].FiredBy, " ",
		first.Events[0].Version, " ", first.Events[0].Outcome, " ", first.Events[0].Attempt))
	_, err := s.ClaimEvents(t.Context(), "mail", "other", 10, time.Minute)
	require.ErrorIs(t, err, store.ErrConsumerBusy)
	c, err := s.EventConsumer(t.Context(), "mail")
	require.NoError(t, err)
	require.Equal(t, "w", *c.Holder)
	require.Equal(t, 3, c.Unread)
	require.NotNil(t, c.OldestUnread)

	require.NoError(t, s.AckEvents(t.Context(), "mail", first.Token, first.Events[0].Position, false), "a part of it")
	_, err = s.ClaimEvents(t.Context(), "mail", "other", 10, time.Minute)
	require.ErrorIs(t, err, store.ErrConsumerBusy, "the others are still claimed")
	require.NoError(t, s.AckEvents(t.Context(), "mail", first.Token, first.Events[0].Position, true), "the others are released")
	require.ErrorIs(t, s.AckEvents(t.Context(), "mail", first.Token, first.Events[1].Position, false), store.ErrConsumerLost)
	second := claimEvents(t, s, "mail", 10)
	require.Equal(t, "pay.b order.done", named(second.Events))
	require.NoError(t, s.AckEvents(t.Context(), "mail", second.Token, second.Events[1].Position, false))
	c, err = s.EventConsumer(t.Context(), "mail")
	require.NoError(t, err)
	require.Zero(t, c.Unread)
	require.Nil(t, c.Holder)
	require.EqualValues(t, 5, c.Position, "events that did not match are behind it too")
	require.Empty(t, claimEvents(t, s, "mail", 10).Events)
	require.ErrorIs(t, s.AckEvents(t.Context(), "unknown", 1, 1, false), store.ErrNotFound)
	_, err = s.ClaimEvents(t.Context(), "unknown", "w", 1, time.Minute)
	require.ErrorIs(t, err, store.ErrNotFound)
}

// TestAConsumerThatDiesLosesItsEvents: the next one gets them when the lease ends, and
// then it can acknowledge nothing.
func TestAConsumerThatDiesLosesItsEvents(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	consumer(t, s, "mail")
	emit(t, db, "shop", "a.a", "a.b")
	dying := claimEvents(t, s, "mail", 10)
	db.Exec(t, `update tasker.event_consumers set lease_until = clock_timestamp() - interval '1 ms'`)
	c, err := s.EventConsumer(t.Context(), "mail")
	require.NoError(t, err)
	require.Nil(t, c.Holder)
	next := claimEvents(t, s, "mail", 10)
	require.Equal(t, "a.a a.b", named(next.Events), "once more")
	require.ErrorIs(t, s.AckEvents(t.Context(), "mail", dying.Token, 2, false), store.ErrConsumerLost)
	require.NoError(t, s.AckEvents(t.Context(), "mail", next.Token, 2, false))
	require.Empty(t, claimEvents(t, s, "mail", 10).Events)
}

func TestALateAcknowledgementCounts(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	consumer(t, s, "mail")
	emit(t, db, "shop", "a.a")
	c := claimEvents(t, s, "mail", 10)
	db.Exec(t, `update tasker.event_consumers set lease_until = clock_timestamp() - interval '1 ms'`)
	require.NoError(t, s.AckEvents(t.Context(), "mail", c.Token, 1, false), "no other holder has them")
	require.Empty(t, claimEvents(t, s, "mail", 10).Events)
}

func TestConsumersArePutSomewhereElse(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	consumer(t, s, "mail")
	emit(t, db, "shop", "a.a", "a.b", "a.c")
	c := claimEvents(t, s, "mail", 10)
	for place, want := range map[store.EventPlace]string{{}: "a.a a.b a.c", {Position: 2}: "a.c", {Now: true}: ""} {
		_, err := s.ResetEventConsumer(t.Context(), "mail", place, byAna)
		require.NoError(t, err)
		require.Equal(t, want, named(claimEvents(t, s, "mail", 10).Events))
	}
	require.ErrorIs(t, s.AckEvents(t.Context(), "mail", c.Token, 3, false), store.ErrConsumerLost)
	_, err := s.ResetEventConsumer(t.Context(), "unknown", store.EventPlace{}, byAna)
	require.ErrorIs(t, err, store.ErrNotFound)
	late, err := s.CreateEventConsumer(t.Context(), store.EventConsumer{Name: "late", Namespace: "shop"}, store.EventPlace{Now: true}, upTo(2), byAna)
	require.NoError(t, err)
	require.EqualValues(t, 3, late.Position)
	_, err = s.CreateEventConsumer(t.Context(), store.EventConsumer{Name: "late", Namespace: "shop"}, store.EventPlace{}, upTo(2), byAna)
	require.ErrorIs(t, err, store.ErrConsumerExists)
	_, err = s.CreateEventConsumer(t.Context(), store.EventConsumer{Name: "third", Namespace: "shop"}, store.EventPlace{}, upTo(2), byAna)
	require.ErrorIs(t, err, store.ErrTooManyConsumers)
	_, err = s.CreateEventConsumer(t.Context(), store.EventConsumer{Name: "lost", Namespace: "nowhere"}, store.EventPlace{}, upTo(9), byAna)
	require.ErrorIs(t, err, store.ErrNotFound)
	list, err := s.EventConsumers(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	gone, err := s.DeleteEventConsumer(t.Context(), "late", byAna)
	require.NoError(t, err)
	require.Equal(t, "late", gone.Name)
	_, err = s.EventConsumer(t.Context(), "late")
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Positive(t, db.QueryInt(t, `select count(*)::int from tasker.operator_actions where actor = 'ana' and target->>'event_consumer' = 'late'`))
}

// TestWorkersShareAConsumer: several claim at once, and between them they get
// every event once and in order.
func TestWorkersShareAConsumer(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	consumer(t, s, "mail")
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("a.n%d", i))
	}
	emit(t, db, "shop", names...)
	var mu sync.Mutex
	var got []string
	var failures []error
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for {
				c, err := s.ClaimEvents(t.Context(), "mail", fmt.Sprint(w), 7, time.Minute)
				if err != nil {
					if strings.Contains(err.Error(), store.ErrConsumerBusy.Error()) {
						continue
					}
					mu.Lock()
					failures = append(failures, err)
					mu.Unlock()
					return
				}
				if len(c.Events) == 0 {
					return
				}
				mu.Lock()
				for i := range c.Events {
					got = append(got, c.Events[i].Name)
				}
				mu.Unlock()
				if err := s.AckEvents(t.Context(), "mail", c.Token, c.Events[len(c.Events)-1].Position, false); err != nil {
					mu.Lock()
					failures = append(failures, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	workers.Wait()
	require.Empty(t, failures)
	require.Equal(t, names, got)
}

func TestListsOfEventsGoOn(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	plan(t, s, publishingYAML)
	plan(t, s, strings.ReplaceAll(publishingYAML, "shop", "market"))
	read := func(f store.EventFilter) store.EventPage {
		page, err := s.Events(t.Context(), f)
		require.NoError(t, err)
		return page
	}
	empty := read(store.EventFilter{Limit: 10, After: 7})
	require.Empty(t, empty.Events)
	require.EqualValues(t, 7, empty.Next)
	require.False(t, empty.More)
	emit(t, db, "shop", "a.a", "b.a")
	emit(t, db, "market", "a.b", "b.b")
	emit(t, db, "shop", "a.c")
	all := read(store.EventFilter{Limit: 3})
	require.Equal(t, "a.a b.a a.b", named(all.Events))
	require.True(t, all.More)
	require.Equal(t, "b.b a.c", named(read(store.EventFilter{Limit: 3, After: all.Next}).Events))
	require.Equal(t, "a.b b.b", named(read(store.EventFilter{Limit: 9, Namespace: "market"}).Events))
	fits := read(store.EventFilter{Limit: 9, Pattern: "a.*"})
	require.Equal(t, "a.a a.b a.c", named(fits.Events))
	require.False(t, fits.More)
	none := read(store.EventFilter{Limit: 9, Pattern: "z.*"})
	require.Empty(t, none.Events)
	require.EqualValues(t, 5, none.Next, "they are not read again")
	one := read(store.EventFilter{Limit: 9, Task: fits.Events[1].Task})
	require.Equal(t, "a.b", named(one.Events))
	require.Equal(t, "market", one.Events[0].Namespace)
	require.Empty(t, read(store.EventFilter{Limit: 9, Task: uuid.Max}).Events)
	last, err := s.LastEvent(t.Context(), "market")
	require.NoError(t, err)
	require.EqualValues(t, 4, last)
	last, err = s.LastEvent(t.Context(), "")
	require.NoError(t, err)
	require.EqualValues(t, 5, last)
}

// TestPatternsMeanTheSameEverywhere: in the database and in Go.
func TestPatternsMeanTheSameEverywhere(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		pattern := rapid.StringMatching(`[ab_.*%\\]{1,8}`).Draw(rt, "pattern")
		name := rapid.StringMatching(`[ab_.]{1,10}`).Draw(rt, "name")
		require.Equal(rt, domainevent.Matches(pattern, name), db.QueryBool(t, `select tasker.event_matches($1, array[$2])`, name, pattern))
	})
}

// TestEndsWithResultsAreSignalled by who has learned with a heartbeat that they are wanted: a
// worker that settles, and an orchestrator.
func TestEndsWithResultsAreSignalled(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, "name: lone\nnamespace_name: shop\nversion: 1.0.0\nsteps: [{name: only, handler: {callable: pay}}]")
	req, processor := taker(p, 1), store.Daemon{UUID: uuid.New(), ID: "o"}
	ends := func(attend bool) (signalled int) {
		_, err := s.ProcessorHeartbeat(t.Context(), processor, time.Minute, attend)
		require.NoError(t, err)
		create(t, s, p, 1)
		_, settled, err := s.Settle(t.Context(), req, []store.Settlement{settlement(t, p, claimLone(t, s, req), `1`)})
		require.NoError(t, err)
		require.Equal(t, 1, settled.Finished)
		c := create(t, s, p, 1)
		taken, err := s.TakeTasks(t.Context(), c, store.Taking{})
		require.NoError(t, err)
		cancelled := change(t, &taken.Tasks[0], workflow.Operation{Action: workflow.ActionCancel, Step: -1})
		cancelled.Action = &store.Performed{Kind: workflow.ActionCancel, Step: -1, Reason: "test"}
		ended, err := taken.Commit(t.Context(), uuid.New(), []store.Change{cancelled})
		require.NoError(t, err)
		for _, topic := range append(settled.Signals, ended.Signals...) {
			if topic.Topic == signal.TopicEvents {
				signalled++
			}
		}
		return signalled
	}
	require.Zero(t, ends(true))
	require.NoError(t, s.WantResults(t.Context(), "shop", true))
	require.Equal(t, 2, ends(true))
	require.NoError(t, s.WantResults(t.Context(), "shop", false))
	require.Zero(t, ends(false))
	require.Equal(t, "tasker.task.complete tasker.task.cancelled", db.QueryString(t, `select string_agg(name, ' ' order by position) from tasker.domain_events`))
	require.NoError(t, s.WantResults(t.Context(), "shop", true))
	_, err := s.WorkerHeartbeat(t.Context(), store.Daemon{UUID: uuid.New(), ID: "w"}, nil, time.Minute)
	require.NoError(t, err)
	create(t, s, p, 1)
	_, settled, err := s.Settle(t.Context(), req, []store.Settlement{settlement(t, p, claimLone(t, s, req), `1`)})
	require.NoError(t, err)
	require.Contains(t, settled.Signals, signal.Signal{Topic: signal.TopicEvents})
}

// TestNamesOfConsumersArePerNamespace: two namespaces have one of the same name, and neither learns of
// the other's.
func TestNamesOfConsumersArePerNamespace(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	for _, namespace := range []string{"alpha", "beta"} {
		_, err := s.RegisterTemplates(t.Context(), store.Registrant{ID: "test", Immutable: store.VersionsRefuse}, []*workflow.Template{{Name: "t", Namespace: namespace, Version: "1.0.0",
			Steps: []workflow.StepTemplate{{Name: "a", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: "a"}}}}})
		require.NoError(t, err)
	}
	create := func(namespace string) (store.EventConsumer, error) {
		return s.CreateEventConsumer(t.Context(), store.EventConsumer{Name: "mail", Namespace: namespace}, store.EventPlace{}, upTo(10), byAna)
	}
	alpha, err := create("alpha")
	require.NoError(t, err)
	require.Equal(t, "mail", alpha.Name)
	beta, err := create("beta")
	require.NoError(t, err)
	require.Equal(t, "beta/mail", beta.Name)
	for _, namespace := range []string{"alpha", "beta"} {
		_, err := create(namespace)
		require.ErrorIs(t, err, store.ErrConsumerExists)
		found, err := s.EventConsumerIn(t.Context(), "mail", []string{namespace})
		require.NoError(t, err)
		require.Equal(t, namespace, found.Namespace)
		_, err = s.ClaimEvents(t.Context(), found.Name, "w", 1, time.Minute)
		require.NoError(t, err)
	}
	_, err = s.EventConsumerIn(t.Context(), "mail", []string{"gamma"})
	require.ErrorIs(t, err, store.ErrNotFound)
	_, err = s.EventConsumerIn(t.Context(), "mail", nil)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func upTo(n int) store.ConsumerBounds { return store.ConsumerBounds{All: n, Namespace: n} }

func TestANamespaceHasItsShareOfTheConsumers(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	db.Exec(t, `insert into tasker.namespaces (name) values ('shop'), ('bank')`)
	create := func(namespace, name string) error {
		_, err := s.CreateEventConsumer(t.Context(), store.EventConsumer{Name: name, Namespace: namespace}, store.EventPlace{},
			store.ConsumerBounds{All: 4, Namespace: 2}, byAna)
		return err
	}
	require.NoError(t, create("shop", "a"))
	require.NoError(t, create("shop", "b"))
	require.ErrorIs(t, create("shop", "c"), store.ErrNamespaceConsumers)
	require.NoError(t, create("bank", "c"))
	require.NoError(t, create("bank", "d"))
	require.ErrorIs(t, create("bank", "e"), store.ErrTooManyConsumers)
}
