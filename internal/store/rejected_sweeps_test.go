package store_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// rejectedSweep is a flow over many rows of the engine itself.
type rejectedSweep struct {
	flow string // as it is logged
	// table and event are those of the rows that are rejected, where when holds.
	table, event, when string
	// prepare makes three rows, of which the second is rejected, and returns the arguments of when.
	prepare func(r *rejectingStore) []any
	// run runs the flow, and returns how many rows it has handled.
	run func(r *rejectingStore) int
}

// rejectingStore is a store with the rows that were left out.
type rejectingStore struct {
	*store.Store
	t     *testing.T
	db    *pgtest.DB
	mu    sync.Mutex
	flows []string
}

// rowsNamed inserts three rows with the names a, culprit and z.
func rowsNamed(insert string) func(r *rejectingStore) []any {
	return func(r *rejectingStore) []any {
		for _, name := range []string{"a", "culprit", "z"} {
			r.db.Exec(r.t, insert, name)
		}
		return nil
	}
}

const (
	deadQueueWorkers = `insert into tasker.queue_workers (worker_id, queue, lives_until, death_noted) values ($1, 'q', clock_timestamp() - interval '2 days', `
	silentWorkers    = `insert into tasker.workers (worker_uuid, worker_id, hostname, version, mode, namespaces, schema_version, heartbeat_at)
		values (gen_random_uuid(), $1, 'h', 'v', 'm', '{}', 1, clock_timestamp() - interval `
	silentProcessors = `insert into tasker.processors (processor_uuid, processor_id, hostname, version, mode, heartbeat_at)
		values (gen_random_uuid(), 'p', $1, 'v', 'm', clock_timestamp() - interval '90 days')`
)

// limitedBy makes three steps of limited callables, of three keys.
func (r *rejectingStore) limitedBy(rule limitrule.Rule, each int) *store.Plan {
	p := plan(r.t, r.Store, limitedYAML)
	rule.KeyPath = tenant
	setLimit(r.t, r.Store, p, rule)
	limited(r.t, r.Store, p, turns(3*each, "a", "culprit", "z")...)
	return p
}

// culpritOf is the task of the second key, in a state of the board.
func (r *rejectingStore) culpritOf(state int) uuid.UUID {
	return uuid.MustParse(r.db.QueryString(r.t, `select task_uuid from tasker.board b join tasker.tasks t using (task_uuid)
		where b.state = $1 and t.context -> 'tenant' ->> 'id' = 'culprit'`, state))
}

var rejectedSweeps = []rejectedSweep{
	{flow: "note_queue_deaths", table: "queue_workers", event: "update", when: `old.worker_id = 'culprit'`, prepare: rowsNamed(deadQueueWorkers + `false)`),
		run: func(r *rejectingStore) int {
			found, err := r.NoteQueueDeaths(r.t.Context(), 100, false)
			require.NoError(r.t, err)
			return len(found.Died)
		}},
	{flow: "retain_queue_workers", table: "queue_workers", event: "delete", when: `old.worker_id = 'culprit'`, prepare: rowsNamed(deadQueueWorkers + `true)`),
		run: func(r *rejectingStore) int {
			gone, err := r.RetainQueues(r.t.Context(), time.Hour, uuid.Nil, 100, false)
			require.NoError(r.t, err)
			return gone.Workers
		}},
	{flow: "retain_workers", table: "workers", event: "delete", when: `old.worker_id = 'culprit'`, prepare: rowsNamed(silentWorkers + `'90 days')`),
		run: (*rejectingStore).retainDaemons},
	{flow: "retain_processors", table: "processors", event: "delete", when: `old.hostname = 'culprit'`, prepare: rowsNamed(silentProcessors),
		run: (*rejectingStore).retainDaemons},
	{flow: "liveness", table: "workers", event: "update", when: `old.worker_id = 'culprit'`, prepare: rowsNamed(silentWorkers + `'1 hour')`),
		run: func(r *rejectingStore) int {
			found, err := r.SweepLiveness(r.t.Context(), store.LivenessLimits{Stale: time.Minute, Dead: 2 * time.Minute, Batch: 100}, false)
			require.NoError(r.t, err)
			return len(found.Dead)
		}},
	{flow: "forget_transitions", table: "transitions", event: "delete", when: `old.outcome = 7`,
		prepare: func(r *rejectingStore) []any {
			for _, outcome := range []int{1, 7, 2} {
				r.db.Exec(r.t, `insert into tasker.transitions (task_uuid, queue, outcome) values (gen_random_uuid(), 0, $1)`, outcome)
			}
			return nil
		},
		run: func(r *rejectingStore) int {
			seen, err := r.SeenNow(r.t.Context())
			require.NoError(r.t, err)
			before := r.db.QueryInt(r.t, `select count(*) from tasker.transitions`)
			_, err = r.ForgetTransitions(r.t.Context(), seen.Snapshot)
			require.NoError(r.t, err)
			return before - r.db.QueryInt(r.t, `select count(*) from tasker.transitions`)
		}},
	{flow: "age", table: "board", event: "update", when: `old.task_uuid = '%s'`,
		prepare: func(r *rejectingStore) []any {
			p := plan(r.t, r.Store, oneStepYAML)
			create(r.t, r.Store, p, 1)
			ids := createOf(r.t, r.Store, r.db, p, -10, 3, 3*time.Minute)
			return []any{ids[1]}
		},
		run: func(r *rejectingStore) (moved int) {
			for _, n := range ageSteps(r.t, r.Store, 100).Steps {
				moved += n
			}
			return moved
		}},
	{flow: "forget_keys", table: "limit_keys", event: "delete", when: `old.key = 'culprit'`,
		prepare: func(r *rejectingStore) []any {
			p := r.limitedBy(limitrule.Rule{MaxRunning: new(10)}, 1)
			claimed, _ := look(r.t, r.Store, p, 10, 0, true)
			endAll(r.t, r.Store, claimed)
			applyAll(r.t, r.Store)
			idleFor(r.t, r.db, p, 8)
			return nil
		},
		run: func(r *rejectingStore) int { return forget(r.t, r.Store, false) }},
	{flow: "act_beyond", table: "board", event: "update", when: `old.task_uuid = '%s' and new.outcome = 1`,
		prepare: func(r *rejectingStore) []any {
			p := r.limitedBy(limitrule.Rule{MaxRunning: new(1), Beyond: limitrule.Drop}, 2)
			claimed, _ := look(r.t, r.Store, p, 10, 0, true)
			require.Len(r.t, claimed, 3)
			return []any{r.culpritOf(2)}
		},
		run: func(r *rejectingStore) int {
			callable := int32(r.db.QueryInt(r.t, `select callable_id from tasker.limits`)) // #nosec G115 -- of a new database
			done, err := r.ActBeyond(r.t.Context(), []int32{callable})
			require.NoError(r.t, err)
			return done.Dropped
		}},
	{flow: "delete_limit", table: "board", event: "update", when: `old.task_uuid = '%s' and new.callable > 0`,
		prepare: func(r *rejectingStore) []any {
			p := r.limitedBy(limitrule.Rule{MaxRunning: new(1)}, 2)
			claimed, _ := look(r.t, r.Store, p, 10, 0, true)
			require.Len(r.t, claimed, 3)
			return []any{r.culpritOf(2)}
		},
		run: func(r *rejectingStore) int {
			before := inLines(r.t, r.db)
			if r.db.QueryInt(r.t, `select count(*) from tasker.limits where removing`) == 0 {
				_, err := r.DeleteLimit(r.t.Context(), "limited", plan(r.t, r.Store, limitedYAML).Steps[0].Handler, "ana", "why")
				require.NoError(r.t, err)
			} else {
				for more := true; more; {
					var err error
					_, _, more, err = r.FinishLimits(r.t.Context())
					require.NoError(r.t, err)
				}
			}
			return before - inLines(r.t, r.db)
		}},
	{flow: "repeat_claims", table: "board", event: "update", when: `old.task_uuid = '%s' and old.worker = new.worker`,
		prepare: func(r *rejectingStore) []any {
			ids := create(r.t, r.Store, plan(r.t, r.Store, oneStepYAML), 3)
			return []any{ids[1]}
		},
		run: func(r *rejectingStore) int {
			worker := uuid.UUID{15: 1}
			callables, err := r.Callables(r.t.Context())
			require.NoError(r.t, err)
			request := store.ClaimRequest{Worker: worker, Limit: 10, Lease: time.Minute}
			for _, c := range callables {
				request.Callables = append(request.Callables, c.ID)
			}
			_, _, err = r.Claim(r.t.Context(), request, true)
			require.NoError(r.t, err)
			again, err := r.Repeat(r.t.Context(), worker, nil, nil, 10, time.Minute)
			require.NoError(r.t, err)
			if len(again) == 3 {
				return 1 // the culprit is there
			}
			return len(again)
		}},
	{flow: "learn", table: "predictions", event: "insert", when: `new.step = 'culprit'`,
		prepare: func(r *rejectingStore) []any {
			p := plan(r.t, r.Store, oneStepYAML)
			r.db.Exec(r.t, silentWorkers+`'0 s')`, "w")
			r.db.Exec(r.t, `update tasker.workers set load = jsonb_build_object('samples', (
				select jsonb_agg(jsonb_build_object('no', no, 'n', $1::text, 't', 'x', 's', s, 'ms', 1)) from unnest(array['a', 'culprit', 'z']) with ordinality l (s, no)))`,
				p.Template.Namespace)
			return nil
		},
		run: func(r *rejectingStore) int {
			before := r.db.QueryInt(r.t, `select count(*) from tasker.predictions`)
			_, err := r.Learn(r.t.Context(), time.Minute, map[uuid.UUID]int64{})
			require.NoError(r.t, err)
			return r.db.QueryInt(r.t, `select count(*) from tasker.predictions`) - before
		}},
}

func (r *rejectingStore) retainDaemons() int {
	gone, err := r.Retain(r.t.Context(), store.RetentionLimits{TTL: time.Hour, Batch: 100}, false)
	require.NoError(r.t, err)
	return gone.Workers
}

// TestOneRejectedRowStopsNoSweep: of three rows the database rejects one. The others are handled, it is named, and it is
// handled once the database takes it.
func TestOneRejectedRowStopsNoSweep(t *testing.T) {
	t.Parallel()
	for i := range rejectedSweeps {
		c, code := &rejectedSweeps[i], pgtest.Rejections[i%len(pgtest.Rejections)]
		t.Run(c.flow, func(t *testing.T) {
			t.Parallel()
			_, db := open(t)
			r := &rejectingStore{t: t, db: db}
			s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4, HoldTimeout: time.Minute, OnRejected: func(flow, row string, why error) {
				t.Log(flow, row, why)
				r.mu.Lock()
				defer r.mu.Unlock()
				r.flows = append(r.flows, flow)
			}})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			r.Store = s
			args := c.prepare(r)
			accept := db.Reject(t, c.table, c.event, fmt.Sprintf(c.when, args...), code)
			require.Equal(t, 2, c.run(r), "the others")
			r.mu.Lock()
			require.Equal(t, []string{c.flow}, slices.Compact(r.flows), "the culprit is named")
			r.mu.Unlock()
			accept()
			require.Equal(t, 1, c.run(r), "the culprit")
		})
	}
}
