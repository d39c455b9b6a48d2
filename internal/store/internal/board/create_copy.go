package board

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// Many tasks are created with COPY: it writes many rows with one WAL record and needs no
// lookup for duplicates before each. A duplicate fails it as a whole; then the statement
// that skips duplicates follows, and is used for the next creations.
const (
	// copiedFrom is from how many tasks on that pays for the round trips.
	copiedFrom = 100
	// copyPause is the number of creations without COPY after a failed one.
	copyPause = 16
)

// copyable reports whether new tasks can be copied: there are many, and all need only
// rows of their own.
func copyable(tasks []NewTask, chosen []bool) bool {
	n := 0
	for i := range tasks {
		t := &tasks[i]
		switch {
		case !chosen[i]:
		case t.Parent != nil || len(t.DependsOn) > 0 || t.IdentityEnd.Calendar != "" || !t.StartAt.IsZero():
			return false
		default:
			n++
		}
	}
	return n >= copiedFrom
}

// insertMany creates the chosen tasks the faster way.
func (s *Board) insertMany(ctx context.Context, db *pg.Conn, tasks []NewTask, chosen []bool) (AcceptedTasks, error) {
	switch {
	case !copyable(tasks, chosen):
	case s.copyPause.Load() > 0: // an approximate count is enough
		s.copyPause.Add(-1)
	default:
		accepted, err := s.copyTasks(ctx, db, tasks, chosen)
		if errors.Is(err, errLimited) {
			break
		}
		if err == nil || !pg.LockTimeout(err) && pg.ServerCode(err) != pg.UniqueViolation {
			return accepted, err
		}
		s.copyPause.Store(copyPause)
	}
	return s.insertAround(ctx, db, createTasks, tasks, chosen, identityPatience)
}

var beginCopy = pg.Compile(`select set_config('lock_timeout', @patience, true) as patience, clock_timestamp() as now, {followed} as followed,
       exists (select from tasker.governed where namespace_id = any (@limited::int[])) as limited, ` + placingLimits + ` as placing`)

// judgesPlans reports whether a quota or limits concern tasks of plans.
// Index: the primary keys.
var judgesPlans = pg.Compile(`
select exists (select from tasker.plans p where p.plan_id = any (@plans::int[]) and (
    exists (select from tasker.quotas q where q.namespace_id = p.namespace_id)
    or exists (select from tasker.submission_limits l where l.namespace_id = p.namespace_id and l.template = p.name)))`)

// errLimited: the tasks are in a namespace with a quota, or of a template with limits, so
// each is judged.
var errLimited = errors.New("tasks are judged")

// recordCreated records the transitions of copied tasks.
var recordCreated = pg.Compile(`
select tasker.record_transition(task_uuid, queue, null, null, null, null, {task_pending}) from ` + stmt.List[createdTask]("c"))

// countCreated counts copied tasks, by the time that they have in the ledger.
var countCreated = pg.Compile(`
insert into tasker.task_counts (plan_id, at, state, count)
select plan_id, date_trunc('minute', @at::timestamptz), {task_pending}, count from ` + stmt.List[createdCount]("c"))

// createdCount is how many tasks of a plan are created.
type createdCount struct {
	PlanID int32
	Count  int64
}

func (c *newRows) counts() []createdCount {
	var list []createdCount
	for i := range c.tasks {
		plan := c.tasks[i].PlanID
		at := slices.IndexFunc(list, func(n createdCount) bool { return n.PlanID == plan })
		if at < 0 {
			at = len(list)
			list = append(list, createdCount{PlanID: plan})
		}
		list[at].Count++
	}
	return list
}

// createdTask is a task with its namespace.
type createdTask struct {
	TaskUUID uuid.UUID
	Queue    int32
}

// recordCreated runs while clients follow transitions.
func (c *newRows) recordCreated(ctx context.Context, tx pgx.Tx) error {
	list := pg.Column(c.tasks, func(t *newTaskRow) createdTask { return createdTask{t.TaskUUID, t.Queue} })
	_, err := pg.Run(ctx, tx, recordCreated.With(pg.Args{"c": list}))
	return err
}

// copyTasks creates all of the chosen tasks or none: the error is a unique violation if
// one has the identity, or the UUID, of an existing task. Times count from the beginning
// of the transaction, which is its own.
func (s *Board) copyTasks(ctx context.Context, db *pg.Conn, tasks []NewTask, chosen []bool) (AcceptedTasks, error) {
	c := creatingOf(tasks, chosen)
	accepted := make(AcceptedTasks, len(c.tasks))
	err := s.db.InTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) {
		type row struct {
			Patience string
			Now      time.Time
			Followed bool
			Limited  bool
			Placing  json.RawMessage
		}
		begun, err := stmt.One[row](ctx, tx, beginCopy.With(pg.Args{"patience": strconv.FormatInt(identityPatience.Milliseconds(), 10),
			"limited": c.limited(func(t *newTaskRow) int32 { return t.Queue }), "callables": c.callables()}))
		if err == nil && begun.Limited {
			plans := c.limited(func(t *newTaskRow) int32 { return t.PlanID })
			begun.Limited, err = pg.OneOf[bool](ctx, tx, judgesPlans.With(pg.Args{"plans": plans}))
		}
		switch {
		case err != nil:
			return nil, err
		case begun.Limited:
			return nil, errLimited
		}
		if err := c.placeByKeys(ctx, tx, begun.Placing); err != nil {
			return nil, err
		}
		// Identities first, in order: a concurrent creation of one of them waits here, or
		// makes this wait.
		for _, rows := range []func(context.Context, pgx.Tx, time.Time) error{c.copyIdentities, c.copyLedger, c.copyBoard} {
			if err := rows(ctx, tx, begun.Now); err != nil {
				return nil, err
			}
		}
		if _, err := pg.Run(ctx, tx, countCreated.With(pg.Args{"at": begun.Now, "c": c.counts()})); err != nil {
			return nil, err
		}
		for i := range c.tasks {
			accepted[c.tasks[i].TaskUUID] = Acceptance{RequestedAt: begun.Now}
		}
		if begun.Followed {
			if err := c.recordCreated(ctx, tx); err != nil {
				return nil, err
			}
		}
		return s.db.WithTransitions(c.topics.Signals()), nil
	})
	return accepted, err
}

// limited are the namespaces, or plans, whose quotas and limits concern the tasks.
func (c *newRows) limited(of func(*newTaskRow) int32) []int32 {
	ids := []int32{}
	for i := range c.tasks {
		if t := &c.tasks[i]; t.Limited && !slices.Contains(ids, of(t)) {
			ids = append(ids, of(t))
		}
	}
	return ids
}

func (c *newRows) copyIdentities(ctx context.Context, tx pgx.Tx, now time.Time) error {
	order := make([]*newTaskRow, 0, len(c.tasks))
	for i := range c.tasks {
		if c.tasks[i].Identity != nil {
			order = append(order, &c.tasks[i])
		}
	}
	slices.SortFunc(order, func(a, b *newTaskRow) int { return bytes.Compare(a.Identity, b.Identity) })
	if len(order) == 0 {
		return nil
	}
	rows := newCopyRows("task_identities (identity, task_uuid, expires_at)", len(order)*100)
	for _, t := range order {
		rows.begin()
		rows.bytes(t.Identity)
		rows.uuid(&t.TaskUUID)
		if t.Window > 0 {
			rows.time(now, t.Window)
		} else {
			rows.int8(math.MaxInt64) // infinity
		}
	}
	return rows.send(ctx, tx)
}

func (c *newRows) copyLedger(ctx context.Context, tx pgx.Tx, now time.Time) error {
	rows := newCopyRows(`tasks (task_uuid, requested_at, start_at, correlation_id, parent_correlation_id, plan_id, queue, priority, initiator, source_system, reason,
		tags, idempotency_key, context, deadline)`, len(c.tasks)*300)
	for i := range c.tasks {
		t := &c.tasks[i]
		rows.begin()
		rows.uuid(&t.TaskUUID)
		rows.time(now, 0)
		rows.later(now, t.StartIn)
		rows.uuid(t.CorrelationID)
		rows.uuid(t.ParentCorrelationID)
		rows.int4(t.PlanID)
		rows.int4(t.Queue)
		rows.int2(t.Priority)
		rows.text(t.Initiator)
		rows.text(t.SourceSystem)
		rows.text(t.Reason)
		rows.list(t.Tags)
		rows.text(t.IdempotencyKey)
		rows.json(t.Context)
		rows.later(now, t.DeadlineIn)
	}
	return rows.send(ctx, tx)
}

// copyBoard copies the tasks and the steps with rows of their own. Sequence numbers are
// drawn last: the sooner they become visible after that, the better.
func (c *newRows) copyBoard(ctx context.Context, tx pgx.Tx, now time.Time) error {
	seqs, err := c.drawNumbers(ctx, tx)
	if err != nil {
		return err
	}
	rows := newCopyRows(`board (task_uuid, slot, step_no, queue, callable, lane, tags, last_attempt, state, seq, due_at, enqueued_at,
		task_state, plan_id, priority, progress, requested_at, correlation_id, parent_correlation_id, context, deadline, watched, trace)`, len(c.tasks)*400)
	// line writes the queue columns of a step: its state, its number, and since or from
	// when.
	line := func(due time.Duration) {
		rows.int2(2 - int(min(due, 1)))
		rows.int8(seqs[0])
		seqs = seqs[1:]
		if rows.later(now, due); due > 0 {
			rows.null()
		} else {
			rows.time(now, 0)
		}
	}
	for i := range c.tasks {
		t := &c.tasks[i]
		rows.begin()
		rows.uuid(&t.TaskUUID)
		rows.int2(0)
		if t.StepNo == nil {
			rows.null()
		} else {
			rows.int2(*t.StepNo)
		}
		rows.int4(t.Queue)
		rows.int4(t.Callable)
		rows.int2(int(t.Lane))
		rows.list(t.StepTags)
		rows.ifTrue(t.LastAttempt)
		if t.StepNo != nil {
			line(t.DueIn)
		} else {
			rows.int2(0)
			rows.int8(0)
			rows.nulls(2)
		}
		rows.int2(1)
		rows.int4(t.PlanID)
		rows.int2(t.Priority)
		rows.bytes(t.Progress)
		rows.time(now, 0)
		rows.uuid(t.CorrelationID)
		rows.uuid(t.ParentCorrelationID)
		if len(t.Context) <= maxInlineContext {
			rows.json(t.Context)
		} else {
			rows.null()
		}
		rows.later(now, t.DeadlineIn)
		rows.ifTrue(t.Watched)
		if t.Trace == nil {
			rows.null()
		} else {
			rows.bytes(t.Trace)
		}
	}
	for i := range c.steps {
		p := &c.steps[i]
		rows.begin()
		rows.uuid(&p.TaskUUID)
		rows.int2(p.StepNo + 1)
		rows.int2(p.StepNo)
		rows.int4(p.Queue)
		rows.int4(p.Callable)
		rows.int2(int(p.Lane))
		rows.list(p.Tags)
		rows.ifTrue(p.LastAttempt)
		line(p.DueIn)
		rows.nulls(11)
	}
	return rows.send(ctx, tx)
}

var drawNumbers = pg.Compile(`select nextval('tasker.step_seq') from generate_series(1, @count::int)`)

func (c *newRows) drawNumbers(ctx context.Context, tx pgx.Tx) ([]int64, error) {
	n := len(c.steps)
	for i := range c.tasks {
		if c.tasks[i].StepNo != nil {
			n++
		}
	}
	return stmt.All[int64](ctx, tx, drawNumbers.With(pg.Args{"count": n}))
}

// copyRows are rows in the binary format of COPY. pgx writes it too, but value by value
// out of interfaces, which takes longer than the server needs for the rows. Source: the
// PostgreSQL documentation, COPY, "Binary Format".
type copyRows struct {
	into   string // table and columns
	fields uint16
	buf    []byte
}

// newCopyRows begins rows of so many bytes, about; into names the table and its
// columns.
func newCopyRows(into string, size int) *copyRows {
	r := &copyRows{into: into, fields: uint16(strings.Count(into, ",") + 1), buf: make([]byte, 0, size+64)} // #nosec G115 -- columns are few
	r.buf = append(r.buf, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)                        // no flags, no extension
	return r
}

// send copies the rows, which must have all of their columns.
func (r *copyRows) send(ctx context.Context, tx pgx.Tx) error {
	r.buf = binary.BigEndian.AppendUint16(r.buf, math.MaxUint16) // the end
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(r.buf), "copy tasker."+r.into+" from stdin binary")
	return err
}

// begin begins a row.
func (r *copyRows) begin() { r.buf = binary.BigEndian.AppendUint16(r.buf, r.fields) }

func (r *copyRows) length(n int) {
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(n)) // #nosec G115 -- what is stored has bounds
}

func (r *copyRows) null() { r.buf = binary.BigEndian.AppendUint32(r.buf, math.MaxUint32) }

func (r *copyRows) nulls(n int) {
	for range n {
		r.null()
	}
}

func (r *copyRows) int2(v int) {
	r.length(2)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(v)) // #nosec G115 -- a smallint
}

func (r *copyRows) int4(v int32) {
	r.length(4)
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(v)) // #nosec G115 -- the same bits
}

func (r *copyRows) int8(v int64) {
	r.length(8)
	r.buf = binary.BigEndian.AppendUint64(r.buf, uint64(v)) // #nosec G115 -- the same bits
}

// ifTrue is true, or null.
func (r *copyRows) ifTrue(v bool) {
	if !v {
		r.null()
		return
	}
	r.length(1)
	r.buf = append(r.buf, 1)
}

func (r *copyRows) bytes(v []byte) {
	r.length(len(v))
	r.buf = append(r.buf, v...)
}

func (r *copyRows) uuid(v *uuid.UUID) {
	if v == nil {
		r.null()
		return
	}
	r.bytes(v[:])
}

// text writes a text; the empty one is null.
func (r *copyRows) text(v string) {
	if v == "" {
		r.null()
		return
	}
	r.length(len(v))
	r.buf = append(r.buf, v...)
}

// json is a jsonb of version 1, which is its text.
func (r *copyRows) json(v string) {
	r.length(len(v) + 1)
	r.buf = append(append(r.buf, 1), v...)
}

// list writes a text[]; an empty one is null.
func (r *copyRows) list(list []string) {
	if len(list) == 0 {
		r.null()
		return
	}
	const textOID = 25
	at := len(r.buf)
	r.length(0)                                                 // known at the end
	for _, header := range []int{1, 0, textOID, len(list), 1} { // dimensions, no nulls, the type, how many, from 1 on
		r.length(header)
	}
	for _, v := range list {
		r.length(len(v))
		r.buf = append(r.buf, v...)
	}
	binary.BigEndian.PutUint32(r.buf[at:], uint32(len(r.buf)-at-4)) // #nosec G115 -- what is stored has bounds
}

// epoch is where PostgreSQL's time begins.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// time is a timestamptz so long after an instant, in milliseconds.
func (r *copyRows) time(at time.Time, after time.Duration) {
	r.int8(at.Sub(epoch).Microseconds() + 1000*stmt.Millis(after))
}

// later is time, or null without a duration.
func (r *copyRows) later(at time.Time, after time.Duration) {
	if after <= 0 {
		r.null()
		return
	}
	r.time(at, after)
}
