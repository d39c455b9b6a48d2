package operations

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// ErrDeadLetterOpen says that the task has another open entry, so this one cannot be reopened.
var ErrDeadLetterOpen = errors.New("the task has another open dead letter")

// DeadLetter is an entry of the dead-letter queue: a task to investigate, and the
// findings. At most one of a task is pending.
type DeadLetter struct {
	UUID                         uuid.UUID `sql:"dlq_entry_uuid"`
	TaskUUID                     uuid.UUID
	Namespace, TaskName, Version string
	OriginalState                workflow.TaskState // when the entry was made
	CurrentState                 workflow.TaskState // now, as stored; 0: the task was deleted
	Reason                       workflow.DeadLetterReason
	Detail                       string    // details of the cause
	At                           time.Time `sql:"dlq_timestamp"`
	Resolution                   pg.Resolution
	ResolvedAt                   *time.Time `sql:"resolution_timestamp"` // nil while it is pending
	Notes                        *string    `sql:"resolution_notes"`
	ResolvedBy                   *string
	Snapshot                     json.RawMessage `sql:"task_snapshot"` // of the task when the entry was made
	Metadata                     json.RawMessage // nil: none
	ReplayedAs                   *uuid.UUID      // the task created from this one
	CreatedAt, UpdatedAt         time.Time
}

// DeadLetterFilter selects entries; zero values select everything.
type DeadLetterFilter struct {
	Resolution  *pg.Resolution             `json:"resolution,omitempty"`
	Reason      *workflow.DeadLetterReason `json:"reason,omitempty"`
	Namespace   string                     `json:"namespace,omitempty"`
	Name        string                     `json:"name,omitempty"`  // of the template
	Since       *time.Time                 `json:"since,omitempty"` // made then or later
	Until       *time.Time                 `json:"until,omitempty"` // made before
	Limit       int                        `json:"limit"`           // 1–10,000
	Offset      int                        `json:"offset,omitempty"`
	OldestFirst bool                       `json:"oldest_first,omitempty"`
}

// DeadLetters lists entries, newest first by default. Those that the database cannot read are left
// out, and named in unreadable.
func (s *Operations) DeadLetters(ctx context.Context, f DeadLetterFilter) (list []DeadLetter, unreadable []uuid.UUID, err error) {
	resolutions, reasons := pg.AllResolutions(), workflow.DeadLetterReasons()
	if f.Resolution != nil {
		resolutions = []pg.Resolution{*f.Resolution}
	}
	if f.Reason != nil {
		reasons = []workflow.DeadLetterReason{*f.Reason}
	}
	query, keys := listDeadLetters, listedDeadLetters
	if f.OldestFirst {
		query, keys = oldestDeadLetters, oldestListed
	}
	const flow, doing = "list_dead_letters", "list dead letters"
	args := pg.Args{"resolutions": numbers(resolutions), "reasons": numbers(reasons), "since": f.Since, "until": f.Until,
		"namespace": f.Namespace, "name": f.Name, "limit": f.Limit, "offset": f.Offset}
	if list, err = pg.ReadAll[DeadLetter](ctx, s.db, flow, doing, query.With(args)); !pg.Rejected(err) {
		return list, nil, err
	}
	ids, err := pg.ReadAll[uuid.UUID](ctx, s.db, flow, doing, keys.With(args))
	if err != nil {
		return nil, nil, err
	}
	list = nil
	unreadable, err = pg.LeftOut(s.db, flow, ids, func(part []uuid.UUID) error {
		some, err := pg.ReadAll[DeadLetter](ctx, s.db, flow, doing, keyedDeadLetters.With(pg.Args{"entries": part}))
		if err == nil { // else it has what came before the error
			list = append(list, some...)
		}
		return err
	}, func(entry uuid.UUID) string { return "dead letter " + entry.String() })
	return list, unreadable, err
}

// DeadLetter reads one entry, or ErrNotFound.
func (s *Operations) DeadLetter(ctx context.Context, id uuid.UUID) (DeadLetter, error) {
	return pg.ReadOne[DeadLetter](ctx, s.db, "dead_letter", "read the dead letter", oneDeadLetter.With(pg.Args{"entry": id}))
}

// DeadLetterOfTask reads the latest entry of a task, or ErrNotFound.
func (s *Operations) DeadLetterOfTask(ctx context.Context, task uuid.UUID) (DeadLetter, error) {
	return pg.ReadOne[DeadLetter](ctx, s.db, "dead_letter", "read the dead letter of the task", latestDeadLetter.With(pg.Args{"task": task}))
}

// PendingReason reads the reason of the pending entry of a task, or ErrNotFound.
func (s *Operations) PendingReason(ctx context.Context, task uuid.UUID) (workflow.DeadLetterReason, error) {
	type row struct{ Reason workflow.DeadLetterReason }
	r, err := pg.ReadOne[row](ctx, s.db, "pending_reason", "look for a pending dead letter", pendingReason.With(pg.Args{"task": task}))
	return r.Reason, err
}

// DeadLetterUpdate changes an entry; nil fields stay.
type DeadLetterUpdate struct {
	Resolution *pg.Resolution
	Notes, By  *string
	Metadata   json.RawMessage // an object; its keys are merged
	ReplayedAs *uuid.UUID
}

// UpdateDeadLetter changes an entry and returns it. The error wraps ErrNotFound if it
// does not exist, and ErrDeadLetterOpen if it should become pending again while another
// entry of its task is.
func (s *Operations) UpdateDeadLetter(ctx context.Context, id uuid.UUID, u DeadLetterUpdate) (DeadLetter, error) {
	var entry DeadLetter
	var resolution *int16
	if u.Resolution != nil {
		number := int16(*u.Resolution)
		resolution = &number
	}
	err := s.db.Call(ctx, "update_dead_letter", "change the dead letter", func(ctx context.Context, db *pg.Conn) error {
		return s.db.InTx(ctx, db, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			lockDeadLetterTask.With(pg.Args{"entry": id}).Queue(b)
			updateDeadLetter.With(pg.Args{"entry": id, "resolution": resolution, "notes": u.Notes, "resolved_by": u.By,
				"metadata": pg.JSONText(u.Metadata), "replayed_as": u.ReplayedAs}).Queue(b)
			markDeadLetterTask.With(pg.Args{"entry": id}).Queue(b)
			oneDeadLetter.With(pg.Args{"entry": id}).Queue(b).Query(stmt.Row(&entry))
			return deadLetterError(tx.SendBatch(ctx, b).Close())
		})
	})
	return entry, err
}

// MarkReplayed records that another task replaces the task of an entry, and closes the
// entry.
func (s *Operations) MarkReplayed(ctx context.Context, id, newTask uuid.UUID, actor string) error {
	closed := pg.ResolutionManuallyResolved
	_, err := s.UpdateDeadLetter(ctx, id, DeadLetterUpdate{Resolution: &closed, By: &actor, ReplayedAs: &newTask})
	return err
}

func deadLetterError(err error) error {
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return pg.ErrNotFound
	case pg.ServerCode(err) == pg.UniqueViolation:
		return ErrDeadLetterOpen
	}
	return err
}

// PurgeDeadLetters deletes up to limit entries that were closed longer ago than
// olderThan, and returns and records how many; a dry run only counts them.
func (s *Operations) PurgeDeadLetters(ctx context.Context, olderThan time.Duration, limit int, by pg.OperatorAction) (purged int, err error) {
	err = s.db.Call(ctx, "purge_dead_letters", "purge dead letters", func(ctx context.Context, db *pg.Conn) error {
		return s.db.InTx(ctx, db, func(tx pgx.Tx) (err error) {
			if purged, err = closedDeadLetters.purge(ctx, tx, pg.Args{"older_ms": olderThan.Milliseconds(), "limit": limit, "skip": 0}, by.DryRun); err != nil {
				return err
			}
			if by.Matched = purged; !by.DryRun {
				by.Changed = purged
			}
			return pg.InsertAction(ctx, tx, by)
		})
	})
	return purged, err
}

// numbers are enumerations as the database has them.
func numbers[E ~int16](list []E) []int16 {
	out := make([]int16, len(list))
	for i, e := range list {
		out[i] = int16(e)
	}
	return out
}

// stateToOpen locks a task's row and returns its state; of an ended task the final one.
// Index: the primary keys.
var (
	liveStateToOpen  = pg.Compile(`select task_state from tasker.board where task_uuid = @task and slot = 0 for update`)
	endedStateToOpen = pg.Compile(`select task_state from tasker.step_attempts where task_uuid = @task and task_state is not null limit 1`)
	// addOpener records the operator who opened an entry and the metadata.
	addOpener = pg.Compile(`
update tasker.dlq_entries
set metadata = coalesce(metadata, '{}') || jsonb_build_object('opened_by', @actor::text) || coalesce(@metadata::jsonb, '{}')
where dlq_entry_uuid = @entry`)
)

// OpenDeadLetter opens a dead letter for a task, alive or ended; metadata are an object
// or nil. A task with an open entry keeps it (created is false), with the detail added.
// The error wraps ErrNotFound if the task does not exist. While this runs a claim skips a
// step in the task's row; a poll finds it.
func (s *Operations) OpenDeadLetter(ctx context.Context, task uuid.UUID, reason workflow.DeadLetterReason, detail, actor string, metadata json.RawMessage) (entry DeadLetter, created bool, err error) {
	err = s.db.Call(ctx, "open_dead_letter", "open a dead letter", func(ctx context.Context, db *pg.Conn) error {
		return s.db.InTx(ctx, db, func(tx pgx.Tx) error {
			state, err := stateToOpen(ctx, tx, task)
			if err != nil {
				return err
			}
			type row struct {
				DlqEntryUUID, TaskUUID uuid.UUID
				Created                bool
			}
			open := []board.OpenedLetter{{TaskUUID: task, OriginalState: state, Reason: reason, Detail: detail}}
			opened, err := stmt.One[row](ctx, tx, board.RecordDeadLetters.With(pg.Args{"o": open}))
			if err != nil {
				return deadLetterError(err) // no row: the task is not in the ledger
			}
			created = opened.Created
			b := &pgx.Batch{}
			addOpener.With(pg.Args{"entry": opened.DlqEntryUUID, "actor": actor, "metadata": pg.JSONText(metadata)}).Queue(b)
			oneDeadLetter.With(pg.Args{"entry": opened.DlqEntryUUID}).Queue(b).Query(stmt.Row(&entry))
			return tx.SendBatch(ctx, b).Close()
		})
	})
	return entry, created, err
}

func stateToOpen(ctx context.Context, tx pgx.Tx, task uuid.UUID) (state workflow.TaskState, err error) {
	state, err = pg.OneOf[workflow.TaskState](ctx, tx, liveStateToOpen.With(pg.Args{"task": task}))
	if errors.Is(err, pg.ErrNotFound) {
		state, err = pg.OneOf[workflow.TaskState](ctx, tx, endedStateToOpen.With(pg.Args{"task": task}))
	}
	return state, err
}

// DescribeStale adds to the open entries of stale tasks the exceeded threshold and the
// time in their states. Tasks without an entry for their staleness are skipped.
func (s *Operations) DescribeStale(ctx context.Context, stale []StaleTask) error {
	list := make([]staleness, len(stale))
	for i := range stale {
		list[i] = staleness{stale[i].UUID, stale[i].MinutesInState, stale[i].ThresholdMinutes}
	}
	_, err := pg.Execute(ctx, s.db, "describe_stale", "describe stale tasks", describeStale.With(pg.Args{"o": list}))
	return err
}

// DeadLetterStats counts the entries of one reason. Each resolution is counted
// up to CountLimit.
type DeadLetterStats struct {
	Reason            workflow.DeadLetterReason
	Total             int // of the four below
	Pending           int
	ManuallyResolved  int
	PermanentlyFailed int
	Cancelled         int
	CountIsBound      bool // one of them is CountLimit, and there are more
	Oldest, Newest    time.Time
	// AverageResolution is the mean time from opening to closing of those counted; nil if
	// none was closed.
	AverageResolution *time.Duration
}

// deadLetterCount is a row of deadLetterStats.
type deadLetterCount struct {
	Reason         workflow.DeadLetterReason
	Resolution     pg.Resolution
	Entries        int
	Newest, Oldest time.Time
	Seconds        *float64 // total, of closed ones
}

// DeadLetterStats returns the counts of each reason with entries.
func (s *Operations) DeadLetterStats(ctx context.Context) ([]DeadLetterStats, error) {
	counts, err := pg.ReadAll[deadLetterCount](ctx, s.db, "dead_letter_stats", "count dead letters", deadLetterStats.With(pg.Args{
		"reasons": numbers(workflow.DeadLetterReasons()), "resolutions": numbers(pg.AllResolutions()), "limit": pg.CountLimit + 1}))
	return statsOf(counts), err
}

// statsOf combines the counts, which come sorted by reason.
func statsOf(counts []deadLetterCount) (stats []DeadLetterStats) {
	for len(counts) > 0 {
		of := DeadLetterStats{Reason: counts[0].Reason, Oldest: counts[0].Oldest, Newest: counts[0].Newest}
		closed, seconds := 0, 0.0
		for len(counts) > 0 && counts[0].Reason == of.Reason {
			c := counts[0]
			counts = counts[1:]
			if c.Seconds != nil {
				closed, seconds = closed+c.Entries, seconds+*c.Seconds
			}
			if c.Entries > pg.CountLimit {
				c.Entries, of.CountIsBound = pg.CountLimit, true
			}
			*of.count(c.Resolution) = c.Entries
			of.Total += c.Entries
			if c.Oldest.Before(of.Oldest) {
				of.Oldest = c.Oldest
			}
			if c.Newest.After(of.Newest) {
				of.Newest = c.Newest
			}
		}
		if closed > 0 {
			mean := time.Duration(seconds / float64(closed) * float64(time.Second))
			of.AverageResolution = &mean
		}
		stats = append(stats, of)
	}
	return stats
}

func (d *DeadLetterStats) count(r pg.Resolution) *int {
	switch r {
	case pg.ResolutionManuallyResolved:
		return &d.ManuallyResolved
	case pg.ResolutionPermanentlyFailed:
		return &d.PermanentlyFailed
	case pg.ResolutionCancelled:
		return &d.Cancelled
	default:
		return &d.Pending
	}
}

// QueueEntry is a pending dead letter in the order of investigation.
type QueueEntry struct {
	UUID                uuid.UUID `sql:"dlq_entry_uuid"`
	TaskUUID            uuid.UUID
	Namespace, TaskName string
	OriginalState       workflow.TaskState
	CurrentState        workflow.TaskState // as stored; 0: the task was deleted
	Reason              workflow.DeadLetterReason
	Detail              string
	At                  time.Time `sql:"dlq_timestamp"`
	Minutes             float64   // in the queue
	MinutesInState      *int      // of a living task
	// Score is the weight of the reason (a cycle 1,000, a step that failed permanently
	// 500, staleness 100, no worker 50, by hand 10) plus one per minute in the queue.
	Score float64
}

// InvestigationQueue lists up to limit pending entries, the most urgent first.
func (s *Operations) InvestigationQueue(ctx context.Context, limit int) ([]QueueEntry, error) {
	return pg.ReadAll[QueueEntry](ctx, s.db, "investigation_queue", "list the investigation queue", investigationQueue.With(pg.Args{
		"reasons": numbers(workflow.DeadLetterReasons()), "limit": limit, "resolution": int16(pg.ResolutionPending)}))
}

// describeStale adds to the open entries of stale tasks the reason.
// Index: dlq_entries_by_task; a hidden list as in reportSteps.
var describeStale = pg.Compile(`
update tasker.dlq_entries d
set task_snapshot = d.task_snapshot || jsonb_build_object('time_in_state_minutes', o.minutes, 'threshold_minutes', o.threshold),
    metadata = coalesce(d.metadata, '{}') || jsonb_build_object('detection_method', 'automatic_staleness',
        'time_in_state_minutes', o.minutes, 'threshold_minutes', o.threshold)
from ` + stmt.HiddenList[staleness]("o") + `
cross join lateral ` + board.OpenEntry + ` e
where d.ctid = e.at and d.reason = {stale}`)

// staleness is for how long a task has been in its state, in minutes, and the exceeded
// threshold.
type staleness struct {
	TaskUUID           uuid.UUID
	Minutes, Threshold int
}

// Statements of one entry. The task's row is locked first, as every flow does
// that decides about a task.
// Index: the primary keys, dlq_entries_by_task.
var (
	lockDeadLetterTask = pg.Compile(`
select from tasker.board where slot = 0 and task_uuid = (select task_uuid from tasker.dlq_entries where dlq_entry_uuid = @entry) for update`)

	// updateDeadLetter changes the given fields; metadata are merged key by key.
	updateDeadLetter = pg.Compile(`
update tasker.dlq_entries
set resolution = coalesce(@resolution::smallint, resolution),
    resolution_timestamp = case when coalesce(@resolution::smallint, resolution) = {pending} then null
                                when resolution = {pending} then clock_timestamp() else resolution_timestamp end,
    resolution_notes = coalesce(@notes::text, resolution_notes), resolved_by = coalesce(@resolved_by::text, resolved_by),
    metadata = case when @metadata::jsonb is null then metadata
                    when jsonb_typeof(metadata) = 'object' and jsonb_typeof(@metadata::jsonb) = 'object' then metadata || @metadata::jsonb
                    else @metadata::jsonb end,
    replayed_as = coalesce(@replayed_as::uuid, replayed_as), updated_at = clock_timestamp()
where dlq_entry_uuid = @entry`)

	markDeadLetterTask = pg.Compile(`
update tasker.board b set dead_letter = case when m.open then true end
from (select d.task_uuid, (select true from tasker.dlq_entries where task_uuid = d.task_uuid and resolution_timestamp is null limit 1) is not null as open
      from tasker.dlq_entries d where d.dlq_entry_uuid = @entry) m
where b.task_uuid = m.task_uuid and b.slot = 0 and coalesce(b.dead_letter, false) <> m.open`)
)

// besideEntry joins to an entry d its template p, its namespace n, and the state of its task:
// b while it is alive, e once it has ended.
const besideEntry = `cross join lateral (select name, version from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) p
cross join lateral (select name from tasker.namespaces where namespace_id = any (array[d.queue]) limit 1) n
left join tasker.board b on b.task_uuid = d.task_uuid and b.slot = 0
left join lateral (select task_state from tasker.step_attempts
                   where task_uuid = d.task_uuid and task_state is not null limit 1) e on b.task_uuid is null
`

// readDeadLetters reads entries with the current state of their tasks. It follows a table
// expression "page" with their keys.
// Index: the primary keys.
const readDeadLetters = `
select d.dlq_entry_uuid, d.task_uuid, n.name as namespace, p.name as task_name, p.version, d.original_state,
       coalesce(b.task_state, e.task_state, 0) as current_state,
       d.reason, d.detail, d.dlq_timestamp, d.resolution, d.resolution_timestamp, d.resolution_notes, d.resolved_by,
       d.task_snapshot, d.metadata, d.replayed_as, d.created_at, d.updated_at
from page
join tasker.dlq_entries d on d.dlq_entry_uuid = page.dlq_entry_uuid
` + besideEntry

// newestListed is the page of a list. It reads each kind of entry from its newest and merges them, so that one
// plan serves every filter: it reads no more rows of a kind than a page ends with, except
// those of other namespaces and names.
// Index: dlq_entries_by_resolution.
const newestListed = `
with page as materialized (
    select e.dlq_entry_uuid
    from unnest(@resolutions::smallint[]) r(resolution) cross join unnest(@reasons::smallint[]) x(reason) cross join lateral (
        select d.dlq_entry_uuid, d.dlq_timestamp from tasker.dlq_entries d
        where d.resolution = r.resolution and d.reason = x.reason
          and d.dlq_timestamp >= coalesce(@since::timestamptz, '-infinity') and d.dlq_timestamp < coalesce(@until::timestamptz, 'infinity')
          and (@namespace = '' or d.queue = (select namespace_id from tasker.namespaces where name = @namespace))
          and (@name = '' or (select name from tasker.plans where plan_id = any (array[d.plan_id]) limit 1) = @name)
        order by d.dlq_timestamp desc, d.dlq_entry_uuid desc limit @limit::int + @offset::int) e
    order by e.dlq_timestamp desc, e.dlq_entry_uuid desc limit @limit::int offset @offset::int
)`

// newestFirst is the order of a list.
const newestFirst = `order by d.dlq_timestamp desc, d.dlq_entry_uuid desc`

// Lists, and the keys of lists; those of the oldest are in reverse order.
var (
	listDeadLetters   = pg.Compile(newestListed + readDeadLetters + newestFirst)
	oldestDeadLetters = pg.Compile(oldest(newestListed + readDeadLetters + newestFirst))
	listedDeadLetters = pg.Compile(newestListed + ` select dlq_entry_uuid from page`)
	oldestListed      = pg.Compile(oldest(newestListed) + ` select dlq_entry_uuid from page`)
	// keyedDeadLetters are a part of a list, in its order.
	// Index: the primary key.
	keyedDeadLetters = pg.Compile(`
with page as materialized (select dlq_entry_uuid, at from unnest(@entries::uuid[]) with ordinality k(dlq_entry_uuid, at))` + readDeadLetters + `order by page.at`)
)

func oldest(list string) string { return strings.ReplaceAll(list, " desc", "") }

var (
	// Index: the primary key.
	oneDeadLetter = pg.Compile(`
with page as materialized (select @entry::uuid as dlq_entry_uuid)` + readDeadLetters)
	// Index: dlq_entries_by_task.
	latestDeadLetter = pg.Compile(`
with page as materialized (
    select dlq_entry_uuid from tasker.dlq_entries where task_uuid = @task order by dlq_timestamp desc limit 1)` + readDeadLetters)
)

// pendingReason: one entry of a task is pending at most, and it need not be the newest.
// Index: dlq_entries_pending.
var pendingReason = pg.Compile(`select reason from tasker.dlq_entries where task_uuid = @task and resolution = {pending}`)

// investigationQueue takes the oldest open entries of each reason: within a
// reason older is more urgent.
// Index: dlq_entries_by_resolution, then the primary keys.
var investigationQueue = pg.Compile(`
with urgent as materialized (
    select e.dlq_entry_uuid, m.minutes, tasker.dlq_priority(x.reason, m.minutes) as score
    from unnest(@reasons::smallint[]) x(reason) cross join lateral (
        select d.dlq_entry_uuid, d.dlq_timestamp from tasker.dlq_entries d
        where d.resolution = (select @resolution::smallint) and d.reason = x.reason
        order by d.dlq_timestamp, d.dlq_entry_uuid limit @limit) e
    cross join lateral (select extract(epoch from clock_timestamp() - e.dlq_timestamp)::float8 / 60 as minutes offset 0) m
    order by score desc, e.dlq_entry_uuid limit @limit
)
select d.dlq_entry_uuid, d.task_uuid, n.name as namespace, p.name as task_name, d.original_state,
       coalesce(b.task_state, e.task_state, 0) as current_state, d.reason, d.detail, d.dlq_timestamp, u.minutes,
       floor(extract(epoch from clock_timestamp() - coalesce(b.state_since, b.requested_at)) / 60)::int as minutes_in_state, u.score
from urgent u
join tasker.dlq_entries d on d.dlq_entry_uuid = u.dlq_entry_uuid
` + besideEntry + `order by u.score desc, u.dlq_entry_uuid`)

// deadLetterStats counts the newest entries of each kind up to a limit, from the index
// only.
// Index: dlq_entries_by_resolution.
var deadLetterStats = pg.Compile(`
select x.reason, r.resolution, e.entries, e.newest, f.oldest, e.seconds
from unnest(@reasons::smallint[]) x(reason) cross join unnest(@resolutions::smallint[]) r(resolution)
cross join lateral (
    select count(*)::int as entries, max(n.dlq_timestamp) as newest,
           sum(extract(epoch from n.resolution_timestamp - n.dlq_timestamp))::float8 as seconds
    from (select dlq_timestamp, resolution_timestamp from tasker.dlq_entries
          where resolution = r.resolution and reason = x.reason
          order by dlq_timestamp desc, dlq_entry_uuid desc limit @limit) n) e
left join lateral (
    select dlq_timestamp as oldest from tasker.dlq_entries
    where resolution = r.resolution and reason = x.reason order by dlq_timestamp, dlq_entry_uuid limit 1) f on true
where e.entries > 0
order by x.reason, r.resolution`)

// closedDeadLetters are closed entries, the longest closed first.
// Index: dlq_entries_closed.
var closedDeadLetters = expiredRows("dlq_entries", `
select ctid as at from tasker.dlq_entries
where resolution > {pending} and resolution_timestamp < (select clock_timestamp() - @older_ms::bigint * interval '1 ms')
order by resolution_timestamp limit @limit offset @skip`)
