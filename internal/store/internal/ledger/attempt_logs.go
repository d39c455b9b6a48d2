package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// LogOf says which attempt something is of.
type LogOf struct {
	Task    uuid.UUID `sql:"task_uuid"`
	Step    int       `sql:"step_no,smallint"`
	Token   int64     // of its claim
	Attempt int       `sql:",smallint"`
}

// LogChunk is some lines of an attempt in a row.
type LogChunk struct {
	LogOf
	attemptlog.Chunk
	StepName string `sql:"-"` // of those that are read
}

// DroppedLog is chunks of an attempt in the database that later ones replace.
type DroppedLog struct {
	Task  uuid.UUID `sql:"task_uuid"`
	Token int64
	attemptlog.Range
}

// StepProgress is how far an execution says that it is.
type StepProgress struct {
	Task     uuid.UUID `sql:"task_uuid"`
	Step     int       `sql:"step_no,smallint"`
	Token    int64
	Fraction float64 // from 0 to 1
	Message  string
	At       time.Time `sql:"-"` // by the clock of the database, of those that are read
}

// keepLogs writes lines of attempts and how far they are, and deletes lines that these replace. A
// repetition changes nothing. Of several executions of a step the latest counts.
// Index: the primary keys; hidden lists, so that each row is looked up by its key.
var keepLogs = pg.Compile(`
with dropped as (
    delete from tasker.attempt_logs l using ` + stmt.HiddenList[DroppedLog]("d") + `
    where l.task_uuid = any (array[d.task_uuid]) and l.at between d.from_at and d.upto_at and l.token = d.token
      and l.first_line >= d.from_line and l.first_line < d.upto_line
), said as (
    insert into tasker.attempt_progress as p (task_uuid, step_no, token, fraction, message)
    select distinct on (s.task_uuid, s.step_no) s.task_uuid, s.step_no, s.token, s.fraction, s.message
    from ` + stmt.List[StepProgress]("s") + `
    order by s.task_uuid, s.step_no, s.token desc
    on conflict (task_uuid, step_no) do update set token = excluded.token, fraction = excluded.fraction, message = excluded.message, at = excluded.at
    where p.token <= excluded.token
)
insert into tasker.attempt_logs (task_uuid, at, token, first_line, last_at, lines, step_no, attempt, levels, content)
select c.task_uuid, c.at, c.token, c.first_line, c.last_at, c.lines, c.step_no, c.attempt, c.levels, c.content
from ` + stmt.List[LogChunk]("c") + `
on conflict do nothing`)

// KeepLogs writes lines of attempts, and how far these are, in one statement. It asks for no claim:
// what an execution logged stays true when its claim is lost. Writing the same again changes nothing.
func (s *Ledger) KeepLogs(ctx context.Context, chunks []LogChunk, dropped []DroppedLog, progress []StepProgress) error {
	_, err := pg.Execute(ctx, s.db, "keep_logs", "write the logs of attempts", keepLogs.With(pg.Args{"c": chunks, "d": dropped, "s": progress}))
	return err
}

// readProgress reads how far the steps of tasks say that they are.
// Index: the primary key.
var readProgress = pg.Compile(`
select task_uuid, step_no, token, fraction::float8 as fraction, message, at from tasker.attempt_progress where task_uuid = any (@tasks)`)

type progressRow struct {
	StepProgress
	At time.Time
}

func (p progressRow) of() uuid.UUID { return p.Task }

// LogPlace is the place of a chunk among those of a task: by time, and by the claims that the times
// of workers cannot tell apart. The zero value is before all.
type LogPlace struct {
	At    time.Time
	Token int64
	First int64
}

// LogQuery selects chunks of a task.
type LogQuery struct {
	Task    uuid.UUID
	Step    *int  // of this step; nil: of all
	Attempt *int  // of the attempts with this number; nil: of all
	Levels  int16 // chunks without a line of these levels come without their content
	After   LogPlace
	// Since is a snapshot: chunks that have become visible after it, from those on that begin at
	// Recent, by the clocks of workers. "": all.
	Since  string
	Recent time.Time
	// Upto is a snapshot: chunks that were visible then; "": now.
	Upto  string
	Limit int
}

// readLogs reads chunks in their order, with the names of steps that were created at run time.
// Index: the primary keys.
var readLogs = pg.Compile(`
select s.snapshot, s.at as now, l.task_uuid, l.step_no, l.token, l.attempt, l.at, l.first_line, l.last_at, l.lines, l.levels, l.content, d.name as batch
from (select coalesce(@upto::text, pg_current_snapshot()::text) as snapshot, clock_timestamp() as at) s
left join lateral (
    select x.task_uuid, x.step_no, x.token, x.attempt, x.at, x.first_line, x.last_at, x.lines, x.levels,
           case when x.levels & @levels::smallint <> 0 then x.content else ''::bytea end as content
    from tasker.attempt_logs x
    where x.task_uuid = @task and (x.at, x.token, x.first_line) > (@at::timestamptz, @token::bigint, @first::bigint)
      and x.at >= @recent::timestamptz
      and (@step::smallint is null or x.step_no = @step::smallint) and (@attempt::smallint is null or x.attempt = @attempt::smallint)
      and (@since::text is null or x.xid >= pg_snapshot_xmax(@since::text::pg_snapshot) or x.xid = any (array(select pg_snapshot_xip(@since::text::pg_snapshot))))
      and (@upto::text is null or pg_visible_in_snapshot(x.xid, @upto::text::pg_snapshot))
    order by x.at, x.token, x.first_line limit @limit) l on true
left join lateral (
    select name from (
        select name, since from tasker.batches where task_uuid = @task and step_no = l.step_no and since < l.token
        union all
        select name, since from tasker.former_batches where task_uuid = @task and step_no = l.step_no and since < l.token) b
    order by since desc limit 1) d on true
order by l.at, l.token, l.first_line`)

// Logs reads chunks of a task, by their place. seen is the moment up to which it has read; at the
// limit there may be more up to it. A task that does not exist has none.
func (s *Ledger) Logs(ctx context.Context, q LogQuery) (chunks []LogChunk, seen Seen, err error) {
	type row struct {
		Snapshot string
		Now      time.Time
		LogChunk `sql:",omitzero"` // none: a row without a chunk
		Batch    string            `sql:",omitzero"`
	}
	err = s.db.Repeatable(ctx, "logs", "read the logs of a task", func(ctx context.Context, db *pg.Conn) error {
		chunks = nil
		return stmt.Each(ctx, db, readLogs.With(q.args()), func(r *row) {
			if seen = (Seen{r.Snapshot, r.Now}); r.Task != uuid.Nil {
				r.LogChunk.StepName = r.Batch
				chunks = append(chunks, r.LogChunk)
			}
		})
	})
	return chunks, seen, err
}

// args are those of readLogs.
func (q *LogQuery) args() pg.Args {
	return pg.Args{"task": q.Task, "step": q.Step, "attempt": q.Attempt, "levels": q.Levels, "at": q.After.At, "token": q.After.Token,
		"first": q.After.First, "since": pg.Text(q.Since), "recent": q.Recent, "upto": pg.Text(q.Upto), "limit": q.Limit}
}
