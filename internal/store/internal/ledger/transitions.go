package ledger

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// Scope is what a client follows: a task, a namespace by its queue id, or the fleet (zero).
type Scope struct {
	Task  uuid.UUID
	Queue int32
}

// String is the scope as stored.
func (s Scope) String() string {
	switch {
	case s.Task != uuid.Nil:
		return "t:" + s.Task.String()
	case s.Queue != 0:
		return "n:" + strconv.Itoa(int(s.Queue))
	}
	return ""
}

// Includes reports whether a transition belongs to the scope.
func (s Scope) Includes(t *Transition) bool {
	return s == Scope{} || s.Task == t.Task && t.Task != uuid.Nil || s.Queue == t.Queue && s.Task == uuid.Nil
}

// Transition is the end of an attempt (Step is not nil), or a change of a task.
type Transition struct {
	Position int64
	Task     uuid.UUID `sql:"task_uuid"`
	Queue    int32
	At       time.Time
	Step     *int                    `sql:"step_no"`
	StepName string                  `sql:"batch,omitzero"`
	Attempt  int                     `sql:",omitzero"`
	Outcome  workflow.AttemptOutcome `sql:",omitzero"`
	From     workflow.TaskState      `sql:"from_state,omitzero"` // 0: the task was created
	To       workflow.TaskState      `sql:"to_state,omitzero"`
	PlanID   int32                   `sql:",omitzero"`
	// Of the plan; empty if it cannot be read.
	Namespace, Name, Version string `sql:"-"`
}

// Seen is a moment of the database: the transactions that were visible then. A read after
// it finds what has become visible since, whenever its transaction began.
type Seen struct {
	Snapshot string    // pg_snapshot
	At       time.Time // by the database's clock
}

// follow begins or prolongs following. An era that has ended, or is about to, begins
// anew. The lock is that of unfollow.
// Index: the primary key.
var follow = pg.Compile(`
insert into tasker.followed as f (scope, until)
select scope, clock_timestamp() + @ms::bigint * interval '1 ms' from unnest((select @scopes::text[])) s(scope) order by scope
on conflict (scope) do update set until = excluded.until,
    era = case when f.until < clock_timestamp() + @margin_ms::bigint * interval '1 ms' then excluded.era else f.era end
returning scope, era`)

// eraMargin is before the end of an era when it is not prolonged any more: a statement may
// have found that it has ended before the prolongation is committed.
const eraMargin = 10 * time.Second

var (
	followTurn   = pg.Compile(`select pg_advisory_xact_lock(hashtext('tasker.followed'))`)
	setFollowing = pg.Compile(`select setval('tasker.following', 2)`)
	// unfollow ends what is not prolonged any more. The lock precedes its snapshot, so it
	// does not miss what another orchestrator has begun to follow.
	// Index: the primary key.
	unfollow = pg.Compile(`
with ended as (
    delete from tasker.followed where until < clock_timestamp()
), none as (
    select not exists (select from tasker.followed where until >= clock_timestamp()) as here
)
select case when here and {followed} then setval('tasker.following', 1) end from none`)
)

// Follow has transitions of the scopes recorded for the time of until, and returns their
// eras. Transactions that have looked before do not record any: see Unaware.
func (s *Ledger) Follow(ctx context.Context, scopes []Scope, until time.Duration) (eras map[Scope]uuid.UUID, err error) {
	of := make(map[string]Scope, len(scopes))
	texts := make([]string, 0, len(scopes))
	for _, scope := range scopes {
		of[scope.String()], texts = scope, append(texts, scope.String())
	}
	type row struct {
		Scope string
		Era   uuid.UUID
	}
	err = s.db.Repeatable(ctx, "follow", "follow transitions", func(ctx context.Context, db *pg.Conn) error {
		eras = make(map[Scope]uuid.UUID, len(scopes))
		b := &pgx.Batch{}
		b.Queue("begin")
		followTurn.With(nil).Queue(b)
		follow.With(pg.Args{"scopes": texts, "ms": until.Milliseconds(), "margin_ms": eraMargin.Milliseconds()}).Queue(b).Query(stmt.Rows(func(r *row) {
			eras[of[r.Scope]] = r.Era
		}))
		if err := s.db.Commit(ctx, db, b, nil); err != nil {
			return err
		}
		_, err := pg.Run(ctx, db, setFollowing.With(nil))
		return err
	})
	if err == nil {
		s.db.Following.Begun()
	}
	return eras, err
}

// unaware are transactions that have looked whether something is followed: they hold a
// lock on the sequence until they end.
var unaware = pg.Compile(`
select distinct virtualtransaction from pg_locks
where locktype = 'relation' and relation = 'tasker.following'::regclass and granted and pid <> pg_backend_pid()
      and database = (select oid from pg_database where datname = current_database())
      and (@among::text[] is null or virtualtransaction = any (@among))`)

// Unaware lists transactions that have looked before now whether something is followed,
// and have not ended; with among only those of it that still run.
func (s *Ledger) Unaware(ctx context.Context, among []string) ([]string, error) {
	return pg.ReadAll[string](ctx, s.db, "unaware", "look for transactions that do not record transitions", unaware.With(pg.Args{"among": among}))
}

// readTransitions reads what has become visible since a snapshot: the transactions that
// began later, and those that were running then. So a transaction that stays open for long
// costs nothing. A page has the snapshot of the first, if there is more than one.
// Index: transitions_xid; the primary keys.
var readTransitions = pg.Compile(`
select s.snapshot, s.at as now, t.*, k.plan_id, d.name as batch
from (select coalesce(@upto::text, pg_current_snapshot()::text) as snapshot, clock_timestamp() as at) s
left join lateral (
    select x.position, x.task_uuid, x.queue, x.at, x.step_no, x.attempt, x.outcome, x.from_state, x.to_state
    from (select * from tasker.transitions where xid >= pg_snapshot_xmax((select @after::text::pg_snapshot))
          union all
          select * from tasker.transitions where xid = any (array(select pg_snapshot_xip(@after::text::pg_snapshot)))) x
    where x.position > @past and (@upto::text is null or pg_visible_in_snapshot(x.xid, @upto::text::pg_snapshot))
      and (@fleet or x.queue = any (@queues::int[]) or x.task_uuid = any (@tasks::uuid[]))
    order by x.position limit @limit) t on true
left join lateral (select plan_id from tasker.tasks where task_uuid = any (array[t.task_uuid]) limit 1) k on true
left join lateral (select name from tasker.batches where task_uuid = any (array[t.task_uuid]) and step_no = t.step_no limit 1) d on true
order by t.position`)

// TransitionQuery selects transitions.
type TransitionQuery struct {
	Scopes []Scope
	After  string // a snapshot
	Upto   string // a snapshot; "": now
	Past   int64  // the position to continue after, with the same Upto
	Limit  int
}

// args are those of readTransitions.
func (q *TransitionQuery) args() pg.Args {
	queues, tasks := []int32{}, pg.UUIDs{}
	for _, s := range q.Scopes {
		if s.Task != uuid.Nil {
			tasks = append(tasks, s.Task)
		} else {
			queues = append(queues, s.Queue)
		}
	}
	return pg.Args{"after": q.After, "upto": pg.Text(q.Upto), "past": q.Past, "limit": q.Limit, "fleet": slices.Contains(q.Scopes, Scope{}),
		"queues": queues, "tasks": tasks}
}

// Transitions reads transitions in the order of their positions, those of a task in the
// order of decisions about it. seen is the moment up to which it has read, unless the
// limit is reached: then there may be more up to it.
func (s *Ledger) Transitions(ctx context.Context, q TransitionQuery) (list []Transition, seen Seen, err error) {
	type row struct {
		Snapshot   string
		Now        time.Time
		Transition `sql:",omitzero"` // none: a row without a transition
	}
	err = s.db.Repeatable(ctx, "transitions", "read transitions", func(ctx context.Context, db *pg.Conn) error {
		list = nil
		var plans []int32
		if err := stmt.Each(ctx, db, readTransitions.With(q.args()), func(r *row) {
			seen = Seen{r.Snapshot, r.Now}
			if r.Task != uuid.Nil {
				list, plans = append(list, r.Transition), append(plans, r.PlanID)
			}
		}); err != nil {
			return err
		}
		slices.Sort(plans)
		found, err := s.registry.PlansOn(ctx, db, slices.Compact(plans))
		for i := range list {
			if p, err := found.Of(list[i].PlanID); err == nil {
				list[i].named(p)
			}
		}
		return err
	})
	return list, seen, err
}

// named adds what the plan knows.
func (t *Transition) named(p *registry.Plan) {
	t.Namespace, t.Name, t.Version = p.Template.Namespace, p.Template.Name, p.Template.Version
	if t.Step != nil && *t.Step < len(p.Steps) {
		t.StepName = p.Steps[*t.Step].Name
	}
}

// SeenNow is the present moment.
func (s *Ledger) SeenNow(ctx context.Context) (Seen, error) {
	return pg.ReadOne[Seen](ctx, s.db, "transitions", "read the snapshot", readSnapshot.With(nil))
}

var readSnapshot = pg.Compile(`select pg_current_snapshot()::text as snapshot, clock_timestamp() as at`)

// forgetTransitions deletes transitions that were visible at a moment.
// Index: transitions_xid.
var forgetTransitions = pg.Compile(`
delete from tasker.transitions where ctid = any (array(
    select ctid from tasker.transitions
    where xid < pg_snapshot_xmax((select @before::text::pg_snapshot)) and pg_visible_in_snapshot(xid, @before::text::pg_snapshot)
    order by xid limit @limit offset @skip for update skip locked))`)

// forgetAtOnce bounds one statement that deletes transitions.
const forgetAtOnce = 10_000

// ForgetTransitions deletes transitions that were visible in a snapshot; "" deletes none.
// It ends what no orchestrator prolongs any more, and returns whether something is still
// followed.
func (s *Ledger) ForgetTransitions(ctx context.Context, before string) (followed bool, err error) {
	for before != "" {
		n, err := s.db.ByPosition("forget_transitions", "old transition %d", forgetAtOnce, func(limit, skip int) (int, error) {
			call := forgetTransitions.With(pg.Args{"before": before, "limit": limit, "skip": skip})
			return pg.Execute(ctx, s.db, "forget_transitions", "delete old transitions", call)
		})
		if err != nil {
			return false, err
		}
		if n < forgetAtOnce {
			break
		}
	}
	watched, note := 0, s.db.Following.Ask()
	err = s.db.Repeatable(ctx, "unfollow", "end what is not followed any more", func(ctx context.Context, db *pg.Conn) error {
		if watched, err = stmt.One[int](ctx, db, readWatched.With(nil)); err != nil || watched%2 == 0 {
			return err
		}
		b := &pgx.Batch{}
		b.Queue("begin")
		followTurn.With(nil).Queue(b)
		unfollow.With(nil).Queue(b)
		if err := s.db.Commit(ctx, db, b, nil); err != nil {
			return err
		}
		watched, err = stmt.One[int](ctx, db, readWatched.With(nil))
		return err
	})
	if err == nil {
		note(watched)
	}
	return watched%2 > 0, err
}

var readWatched = pg.Compile(`select {watched}`)
