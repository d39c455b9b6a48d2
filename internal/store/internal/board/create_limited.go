package board

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// Tasks of templates with a throttle or a debounce are created by a statement of their own,
// so that tasks without either pay nothing: createTasks leaves them out, and this statement
// creates them. A plan remembers it, which saves that round trip for the next ones.

// createLimited is createTasks in which tasker.admit judges each submission. Each repetition
// of an identity in it (again) counts as another submission where it is debounced.
// All quotas and limits are locked before the first identity, in the order of the namespaces
// and templates.
// Index: the primary keys.
var createLimited = pg.Compile(limited.Replace(creating))

var limited = strings.NewReplacer(
	stmt.List[newTaskRow]("i"), stmt.List[judgedRow]("i"),
	refusal+` as refused_ms`, `case when i.limited then tasker.admit(i.queue, i.plan_id, i.task_uuid, i.identity, i.idempotency_key is not null, i.again,
        i.waits, i.context, string_to_array(i.tags, {separator}), coalesce(i.not_before, statement_timestamp() + nullif(i.start_ms, 0) * interval '1 ms')) end as admission`,
	`select identity, task_uuid, case`, `select identity, coalesce((admission ->> 'instead')::uuid, task_uuid), case`,
	`identity is not null and refused_ms is null`, `identity is not null and not again and (admission -> 'refused_ms') is null`,
	`accepted as (
    select *, context::jsonb as context_json, case when not_before > statement_timestamp() then not_before end as start_at
    from input i where refused_ms is null and`, `latest as materialized (
    select distinct on (of_task) (admission ->> 'instead')::uuid as of_task, context as latest
    from input where admission ->> 'fresh' = 'true' order by of_task, task_uuid desc
), accepted as (
    select i.*, coalesce(f.latest, i.context) as latest, coalesce(f.latest, i.context)::jsonb as context_json,
           coalesce((admission ->> 'start_at')::timestamptz, case when not_before > statement_timestamp() then not_before end) as start_at
    from input i left join latest f on f.of_task = i.task_uuid
    where not again and (admission -> 'refused_ms') is null and (admission -> 'instead') is null and`,
	`case when start_ms > 0`, `case when start_at is null and start_ms > 0`,
	`octet_length(context)`, `octet_length(latest)`,
	`when due_ms > 0 then clock_timestamp()`, `when start_at is null and due_ms > 0 then clock_timestamp()`,
	`when s.due_ms > 0 then clock_timestamp()`, `when a.start_at is null and s.due_ms > 0 then clock_timestamp()`,
	`null::bigint as refused_ms from accepted`, `null::bigint as refused_ms, admission from accepted`,
	`null, refused_ms from input where refused_ms is not null`,
	`null, (admission ->> 'refused_ms')::bigint, admission from input where admission ? 'refused_ms' or admission ? 'instead'`)

// judgedRow is a row of createLimited.
type judgedRow struct {
	newTaskRow
	Again bool // the identity is that of one before it
	Waits bool // it may wait for more submissions
}

func (c *newRows) judged() []judgedRow {
	rows := make([]judgedRow, len(c.tasks))
	seen := make(map[dedup.Identity]bool, len(c.tasks))
	for i := range c.tasks {
		t := c.tasks[i].task
		rows[i] = judgedRow{newTaskRow: c.tasks[i], Waits: t.waits()}
		if t.Identity != nil {
			rows[i].Again = seen[*t.Identity]
			seen[*t.Identity] = true
		}
	}
	return rows
}

// waits reports whether a submission can become a part of a task that waits for more.
func (t *NewTask) waits() bool { return t.Limited && len(t.DependsOn) == 0 && t.StepTags == nil }

// wasLast reports whether a submission to a debounced template has not been followed by
// another one. It reads all keys of limits.
var wasLast = pg.Compile(`select exists (select from tasker.submission_keys where last_uuid = any (@tasks::uuid[]))`)

// insertSubmissions creates the distinct ones of the tasks; again: a first try has failed.
func (s *Board) insertSubmissions(ctx context.Context, db *pg.Conn, tasks []NewTask, again bool) (AcceptedTasks, error) {
	chosen := DistinctIdentities(tasks)
	if again {
		// If only the answer of the first try was lost, its submissions count once.
		ids := pg.Column(tasks, func(t *NewTask) [16]byte { return t.UUID })
		lost, err := pg.OneOf[bool](ctx, db, wasLast.With(pg.Args{"tasks": ids}))
		if err == nil && lost {
			err = passOver(ctx, db, tasks, chosen)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range tasks {
		if tasks[i].Limited && tasks[i].Plan.Limited.Load() {
			return s.insertLimited(ctx, db, tasks, chosen)
		}
	}
	accepted, err := s.insertMany(ctx, db, tasks, chosen)
	if err == nil {
		err = s.insertLeft(ctx, db, tasks, chosen, accepted)
	}
	return accepted, err
}

// insertLeft creates the tasks that createTasks has left out.
func (s *Board) insertLeft(ctx context.Context, db *pg.Conn, tasks []NewTask, chosen []bool, accepted AcceptedTasks) error {
	left := make([]bool, len(tasks))
	some := false
	for i := range tasks {
		if left[i] = chosen[i] && accepted[tasks[i].UUID].Limited; left[i] {
			some = true
			delete(accepted, tasks[i].UUID) // it may be a duplicate
		}
	}
	if !some {
		return nil
	}
	more, err := s.insertLimited(ctx, db, tasks, left)
	accepted.add(more)
	return err
}

// insertLimited creates the chosen tasks with createLimited, and remembers which of their
// plans have limits.
func (s *Board) insertLimited(ctx context.Context, db *pg.Conn, tasks []NewTask, chosen []bool) (AcceptedTasks, error) {
	first := make(map[dedup.Identity]bool, len(tasks))
	for i := range tasks {
		switch t := &tasks[i]; {
		case t.Identity == nil:
		case chosen[i]:
			first[*t.Identity] = true
		default:
			chosen[i] = first[*t.Identity] && t.waits() && t.IdempotencyKey == ""
		}
	}
	accepted, err := s.insertAround(ctx, db, createLimited, tasks, chosen, identityPatience)
	for i := range tasks {
		if a := accepted[tasks[i].UUID]; tasks[i].Limited && !a.RequestedAt.IsZero() {
			tasks[i].Plan.Limited.Store(a.Limited)
		}
	}
	return accepted, err
}

// collectJudged reads the rows of createLimited.
func (a AcceptedTasks) collectJudged(rows pgx.Rows) error {
	type row struct {
		TaskUUID    uuid.UUID
		RequestedAt *time.Time
		Refused     *int64 `sql:"refused_ms"`
		Admission   json.RawMessage
	}
	var first []uuid.UUID // tasks of this statement that others have become parts of
	err := stmt.Checked(func(r *row) (err error) {
		var told struct {
			Throttled, Opened bool
			Instead           uuid.UUID
			Fresh             *bool
		}
		if r.Admission != nil {
			err = json.Unmarshal(r.Admission, &told)
		}
		accepted := Acceptance{Limited: r.Admission != nil, Throttled: told.Throttled, Debounced: told.Instead}
		switch {
		case r.Refused != nil:
			accepted.RefusedFor = time.Duration(*r.Refused) * time.Millisecond
		case r.RequestedAt != nil:
			if accepted.RequestedAt = *r.RequestedAt; told.Opened {
				accepted.Debounced = r.TaskUUID
			}
		case told.Fresh != nil:
			first = append(first, told.Instead)
		}
		a[r.TaskUUID] = accepted
		return err
	})(rows)
	for _, id := range first {
		if a[id].RequestedAt.IsZero() && err == nil {
			err = errLost
		}
	}
	return err
}

// errLost: a task that other submissions of the statement were debounced into was not created,
// because its identity was taken meanwhile. They are retried one by one.
var errLost = errors.New("create a debounced task: its identity is taken")

// debouncedTasks are those of the tasks that submissions have become parts of.
// It reads all keys of limits.
var debouncedTasks = pg.Compile(`select task_uuid from tasker.submission_keys where task_uuid = any (@tasks::uuid[])`)

// answerLost corrects the answers of a second try: a submission that the first one has made
// a part of another task seems to repeat one.
func answerLost(ctx context.Context, db stmt.Querier, tasks []NewTask, answers []CreatedTask) error {
	var holders pg.UUIDs
	for i := range answers {
		if answers[i].Duplicate && tasks[i].waits() {
			holders = append(holders, answers[i].UUID)
		}
	}
	if holders == nil {
		return nil
	}
	debounced := map[uuid.UUID]bool{}
	err := stmt.Each(ctx, db, debouncedTasks.With(pg.Args{"tasks": holders}), func(id *uuid.UUID) { debounced[*id] = true })
	for i := range answers {
		if a := &answers[i]; a.Duplicate && tasks[i].waits() && debounced[a.UUID] {
			a.Duplicate, a.Debounced = false, true
		}
	}
	return err
}
