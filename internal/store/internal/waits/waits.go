package waits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Waits is the room of steps that wait. It is safe for concurrent use.
type Waits struct {
	db       *pg.DB
	registry *registry.Memory
	searched int // see maxSearched
}

// New returns the room.
func New(db *pg.DB, r *registry.Memory) *Waits { return &Waits{db, r, maxSearched} }

// eventAwaits is the text of an event: with a key for steps that know it, without for a
// task.
func eventAwaits(namespace, name, key string, task uuid.UUID) string {
	if key != "" {
		return board.AwaitsEvent + namespace + board.AwaitsParts + name + board.AwaitsParts + "=" + key
	}
	return board.AwaitsEvent + namespace + board.AwaitsParts + name + board.AwaitsParts + "@" + task.String()
}

// waitEnd is how a wait ends; zero: it goes on.
type waitEnd struct {
	Outcome   workflow.AttemptOutcome `sql:",omitzero"`
	Retryable *bool
	Result    json.RawMessage
	Error     json.RawMessage
}

func waitEndOf(end *enginestep.End) waitEnd {
	switch {
	case end == nil:
		return waitEnd{}
	case end.Result == nil:
		return waitEnd{workflow.OutcomeFailed, &end.Retryable, nil, end.Error}
	}
	return waitEnd{workflow.OutcomeSuccess, nil, end.Result, end.Error}
}

// endedWait is what a step awaited, with the end of its wait.
type endedWait struct {
	Awaits string
	waitEnd
}

// reportWaits ends waits: they become reports like those of workers.
// Index: board_awaits.
var reportWaits = pg.Compile(`
update tasker.board s
set state = {reported}, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null,
    outcome = r.outcome, retryable = r.retryable, result = r.result::jsonb, error = r.error::jsonb
from ` + stmt.HiddenList[endedWait]("r") + `
where s.awaits = any (array[r.awaits collate "C"])
returning s.task_uuid, s.step_no`)

// Approval is a step that waits for a decision.
type Approval struct {
	Token           string // allows one decision
	TaskUUID        uuid.UUID
	StepUUID        uuid.UUID
	Namespace, Task string // the name of the template
	Step            string
	Prompt          string
	Since           time.Time
	Until           *time.Time // nil: without limit
}

// approvals reads waiting approvals with their steps, placesOf the places of a list of them.
const (
	approvals = `
select substr(s.awaits, 2) as token, s.task_uuid, s.slot, s.step_no, b.plan_id, coalesce(s.wait ->> 'prompt', '') as prompt, s.claimed_at as since,
       s.due_at as until, clock_timestamp() as now` + ofBoard
	placesOf = `
select s.claimed_at as since, s.task_uuid, s.slot` + ofBoard
	ofBoard = `
from tasker.board s
cross join lateral (select plan_id, queue from tasker.board where task_uuid = s.task_uuid and slot = 0 limit 1) b `
)

// The order of approvals, and the conditions for those of a list; literals, as those of the index.
const (
	approvalOrder  = ` order by s.claimed_at, s.task_uuid, s.slot `
	anyApproval    = `s.awaits >= 'a' and s.awaits < 'b'`
	afterPlace     = anyApproval + ` and (s.claimed_at, s.task_uuid, s.slot) > (@since::timestamptz, @task::uuid, @slot::smallint)`
	untilPlace     = ` and (s.claimed_at, s.task_uuid, s.slot) <= (@last_since::timestamptz, @last_task::uuid, @last_slot::smallint)`
	ofTheNamespace = ` and b.queue = (select namespace_id from tasker.namespaces where name = @namespace)`
)

// Of a namespace the approvals are found among those of all: approvalPlace is as far as a list
// looks for them.
// Index: board_approvals, or the primary key for those of a task; board_awaits for one.
var (
	listApprovals   = listOf(`where ` + afterPlace + approvalOrder + `limit @limit`)
	searchApprovals = listOf(`where ` + afterPlace + untilPlace + ofTheNamespace + approvalOrder + `limit @limit`)
	approvalPlace   = pg.Compile(`
select s.claimed_at as since, s.task_uuid, s.slot from tasker.board s where ` + afterPlace + approvalOrder + `offset @most limit 1`)
	taskApprovals = listOf(`where s.task_uuid = @task and s.slot > 0 and ` + anyApproval + approvalOrder + `limit @limit`)
	// keyedApprovals are a part of a list.
	keyedApprovals = pg.Compile(approvals + `
join ` + stmt.HiddenList[board.RowKey]("r") + ` on s.task_uuid = any (array[r.task_uuid]) and s.slot = r.slot
where ` + anyApproval + approvalOrder)
	readApproval = pg.Compile(approvals + `where s.awaits = @awaits`)
	lockApproval = pg.Compile(approvals + `where s.awaits = @awaits for update of s`)
)

// approvalList reads a list of approvals, or the places of one.
type approvalList struct{ rows, places *stmt.Statement }

func listOf(which string) approvalList {
	return approvalList{pg.Compile(approvals + which), pg.Compile(placesOf + which)}
}

// ApprovalPage is a part of the list of approvals.
type ApprovalPage struct {
	Approvals []Approval
	// Next is the place after which others follow; nil: none do.
	Next *ApprovalPlace
	// Unreadable are the tasks of approvals that are left out, because the database or this program cannot read them.
	Unreadable []uuid.UUID
}

// ApprovalFilter selects approvals; zero values select all.
type ApprovalFilter struct {
	TaskUUID  *uuid.UUID
	Namespace string
	Limit     int // at least 1
	// After is the place up to which the list was read before.
	After ApprovalPlace
}

// ApprovalPlace is a place in the order of approvals; the zero value is before all.
type ApprovalPlace struct {
	Since    time.Time
	TaskUUID uuid.UUID
	Slot     int16
}

func (p *ApprovalPlace) args() pg.Args {
	return pg.Args{"since": p.Since, "task": p.TaskUUID, "slot": p.Slot}
}

// maxSearched bounds the approvals of all namespaces that are looked at for those of one.
const maxSearched = 2000

// Approvals lists steps that wait for a decision, the oldest first. The list may be short of its
// limit, or empty, though more follow.
func (s *Waits) Approvals(ctx context.Context, f ApprovalFilter) (page ApprovalPage, err error) {
	err = s.db.Repeatable(ctx, "approvals", "list the approvals", func(ctx context.Context, db *pg.Conn) error {
		page = ApprovalPage{}
		var list approvalList
		var args pg.Args
		switch {
		case f.TaskUUID != nil:
			list, args = taskApprovals, pg.Args{"task": *f.TaskUUID, "limit": f.Limit}
		case f.Namespace == "":
			list, args = listApprovals, f.After.args().And(pg.Args{"limit": f.Limit + 1})
		default:
			last := ApprovalPlace{Since: infinity, TaskUUID: uuid.Max}
			place, err := stmt.One[ApprovalPlace](ctx, db, approvalPlace.With(f.After.args().And(pg.Args{"most": s.searched - 1})))
			switch {
			case err == nil:
				last, page.Next = place, &place
			case !errors.Is(err, pgx.ErrNoRows):
				return err
			}
			list, args = searchApprovals, f.After.args().And(pg.Args{"limit": f.Limit + 1, "namespace": f.Namespace,
				"last_since": last.Since, "last_task": last.TaskUUID, "last_slot": last.Slot})
		}
		found, err := s.listed(ctx, db, list, args)
		if err != nil {
			return err
		}
		if f.TaskUUID == nil && len(found) > f.Limit {
			found = found[:f.Limit]
			page.Next = &found[f.Limit-1].place
		}
		for i := range found {
			if a := &found[i]; a.step != nil {
				page.Approvals = append(page.Approvals, a.Approval)
			} else {
				page.Unreadable = append(page.Unreadable, a.place.TaskUUID)
			}
		}
		return nil
	})
	return page, err
}

// listed reads a list of approvals. Where the database rejects it, each that it rejects alone is in its place
// without a step.
func (s *Waits) listed(ctx context.Context, db *pg.Conn, list approvalList, args pg.Args) ([]standingApproval, error) {
	found, err := s.approvals(ctx, db, list.rows.With(args))
	if !pg.Rejected(err) {
		return found, err
	}
	places, err := stmt.All[ApprovalPlace](ctx, db, list.places.With(args))
	if err != nil {
		return nil, err
	}
	found = nil
	err = aside.Apart(places, pg.Rejected, func(part []ApprovalPlace) error {
		keys := pg.Column(part, func(p *ApprovalPlace) board.RowKey { return board.RowKey{TaskUUID: p.TaskUUID, Slot: p.Slot} })
		some, err := s.approvals(ctx, db, keyedApprovals.With(pg.Args{"r": keys}))
		if err == nil {
			found = append(found, some...)
		}
		return err
	}, func(p ApprovalPlace, why error) {
		found = append(found, standingApproval{place: p})
		s.db.Opts.OnRejected("approvals", p.TaskUUID.String(), why)
	})
	return found, err
}

// infinity is later than any approval.
var infinity = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// standingApproval is an approval with its place, and the data for its decision.
type standingApproval struct {
	Approval
	place ApprovalPlace
	step  *workflow.PlanStep // nil: it cannot be read
	now   time.Time
	why   error // this program cannot read its plan
}

// approvals reads approvals with what their decisions need.
func (s *Waits) approvals(ctx context.Context, db stmt.Querier, c stmt.Call) ([]standingApproval, error) {
	type row struct {
		Token    string
		TaskUUID uuid.UUID
		Slot     int16
		StepNo   int
		PlanID   int32
		Prompt   string
		Since    time.Time
		Until    *time.Time
		Now      time.Time
	}
	rows, err := stmt.All[row](ctx, db, c)
	if err != nil {
		return nil, err
	}
	read, err := s.registry.PlansOn(ctx, db, pg.Column(rows, func(r *row) int32 { return r.PlanID }))
	if err != nil {
		return nil, err
	}
	list := make([]standingApproval, len(rows))
	for i, r := range rows {
		list[i] = standingApproval{place: ApprovalPlace{r.Since, r.TaskUUID, r.Slot}, now: r.Now}
		p, err := read.Of(r.PlanID)
		if err != nil {
			list[i].why = err
			continue
		}
		list[i].step = &p.Steps[r.StepNo]
		list[i].Approval = Approval{Token: r.Token, TaskUUID: r.TaskUUID, StepUUID: board.StepUUID(r.TaskUUID, r.StepNo), Namespace: p.Template.Namespace,
			Task: p.Template.Name, Step: list[i].step.Name, Prompt: r.Prompt, Since: r.Since, Until: r.Until}
	}
	return list, nil
}

// standing reads one approval; the error wraps ErrNotFound if it has been decided, or never existed.
func (s *Waits) standing(ctx context.Context, db stmt.Querier, c stmt.Call) (standingApproval, error) {
	list, err := s.approvals(ctx, db, c)
	switch {
	case err != nil:
		return standingApproval{}, err
	case len(list) == 0:
		return standingApproval{}, pg.ErrNotFound
	}
	return list[0], list[0].why
}

// Approval reads the approval with a token; the error wraps ErrNotFound if it has been
// decided, or never existed.
// Index: board_awaits.
func (s *Waits) Approval(ctx context.Context, token string) (Approval, error) {
	return pg.Read(ctx, s.db, "approval", "look for the approval", func(ctx context.Context, db *pg.Conn) (a Approval, err error) {
		found, err := s.standing(ctx, db, readApproval.With(pg.Args{"awaits": board.AwaitsApproval + token}))
		return found.Approval, err
	})
}

// Decide ends the wait of the approval with a token; a second decision finds none, and
// the error wraps ErrNotFound. The signals are to publish, unless the store sends them
// itself.
// Index: board_awaits.
func (s *Waits) Decide(ctx context.Context, token string, d enginestep.Decision) (Approval, []signal.Signal, error) {
	by := pg.OperatorAction{Actor: d.Actor, Action: "reject", Reason: d.Comment}
	if d.Approved {
		by.Action = "approve"
	}
	return pg.Recorded(ctx, s.db, "decide", "decide about the approval", by, signal.TopicOrchestration, func(ctx context.Context, tx pgx.Tx) (a Approval, _ map[string]any, err error) {
		found, err := s.standing(ctx, tx, lockApproval.With(pg.Args{"awaits": board.AwaitsApproval + token}))
		if err != nil {
			return a, nil, err
		}
		a, d.DecidedAt = found.Approval, found.now
		end, err := enginestep.Decide(found.step, d)
		if err == nil {
			_, err = reportEnds(ctx, tx, []string{board.AwaitsApproval + token}, []enginestep.End{end})
		}
		return a, map[string]any{"task_uuid": a.TaskUUID, "step_uuid": a.StepUUID, "step": a.Step}, err
	})
}

// reportEnds ends waits, each with its end; it returns the number of steps.
func reportEnds(ctx context.Context, tx pgx.Tx, awaits []string, ends []enginestep.End) (int, error) {
	rows := make([]endedWait, len(ends))
	for i := range ends {
		rows[i] = endedWait{awaits[i], waitEndOf(&ends[i])}
	}
	return pg.Run(ctx, tx, reportWaits.With(pg.Args{"r": rows}))
}

// ReceivedEvent is an event from outside; all of it has been validated.
type ReceivedEvent struct {
	Namespace string     // of the steps that may wait for it; empty if sent to a task
	Name      string     // of the event
	Key       string     // distinguishes events of one name; empty if sent to a task
	TaskUUID  *uuid.UUID // the task that it is sent to; nil: all steps that wait for its key
	Payload   json.RawMessage
	SenderID  string        // a second event with it in a namespace is a duplicate; empty: none
	KeepFor   time.Duration // how long an event that no step waits for is kept
}

// Delivered is the outcome of an event.
type Delivered struct {
	UUID      uuid.UUID
	Duplicate bool // it was received before; nothing was done
	Steps     int  // that have received it; of the first one if it is a duplicate
	ExpiresAt time.Time
	Signals   []signal.Signal // to publish, unless the store sends them itself
}

// lockEventKeys serializes events and the steps that begin to wait for them, key by key
// in a global order.
var lockEventKeys = pg.Compile(`
select pg_advisory_xact_lock(k) from (select distinct hashtextextended(w, 1952543595) as k from unnest(@keys::text[]) u(w) order by 1) keys`)

// eventResult is an event e as the result of the step that has waited for it.
const eventResult = `jsonb_build_object('event', e.name, 'key', e.key, 'event_uuid', e.event_uuid,
           'received_at', to_char(e.received_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), 'payload', e.payload)`

// receiveEvent records an event and ends the waits for it.
// Index: received_events_id, board_awaits.
var receiveEvent = pg.Compile(`
with e as (
    insert into tasker.received_events (namespace_id, name, key, task_uuid, awaits, sender_id, payload, expires_at)
    values (@namespace_id, @name, @key, @task, @awaits, @sender, @payload::jsonb, clock_timestamp() + @keep_ms::bigint * interval '1 ms')
    on conflict (namespace_id, sender_id) where sender_id is not null do nothing
    returning *
), reached as (
    update tasker.board s
    set state = {reported}, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null, outcome = {success},
        result = ` + eventResult + `
    from e where s.awaits = any (array[e.awaits])
    returning s.task_uuid
)
select e.event_uuid, e.expires_at, (select count(*) from reached)::int as steps, (select task_uuid from reached limit 1) as first from e`)

// receivedBefore is the earlier event with the same id.
// Index: received_events_id.
var receivedBefore = pg.Compile(`
select event_uuid, expires_at, delivered as steps, taken_by as first from tasker.received_events where namespace_id = @namespace_id and sender_id = @sender`)

// Index: the primary key.
var markReceived = pg.Compile(`update tasker.received_events set delivered = @steps, taken_by = @first where event_uuid = @event`)

// receivedRow is an event that was received, and its first receiver.
type receivedRow struct {
	EventUUID uuid.UUID
	ExpiresAt time.Time
	Steps     int
	First     *uuid.UUID
}

// ReceiveEvent delivers an event to all steps that wait for it. If none does, it is kept,
// and the first step that will wait for it gets it at once. The error wraps ErrNotFound
// if the namespace or task does not exist, or ErrTaskEnded.
func (s *Waits) ReceiveEvent(ctx context.Context, e ReceivedEvent) (Delivered, error) {
	return pg.Change(ctx, s.db, "receive_event", "deliver the event", func(ctx context.Context, tx pgx.Tx) (d Delivered, _ []signal.Signal, err error) {
		queue, namespace, err := s.eventAddress(ctx, tx, &e)
		if err != nil {
			return d, nil, err
		}
		var task uuid.UUID
		if e.TaskUUID != nil {
			task = *e.TaskUUID
		}
		awaits := eventAwaits(namespace, e.Name, e.Key, task)
		if _, err := pg.Run(ctx, tx, lockEventKeys.With(pg.Args{"keys": []string{awaits}})); err != nil {
			return d, nil, err
		}
		receive := receiveEvent.With(pg.Args{"namespace_id": queue, "name": e.Name, "key": pg.Text(e.Key), "task": e.TaskUUID, "awaits": awaits,
			"sender": pg.Text(e.SenderID), "payload": pg.JSONText(e.Payload), "keep_ms": stmt.Millis(e.KeepFor)})
		r, err := stmt.One[receivedRow](ctx, tx, receive)
		if d.Duplicate = errors.Is(err, pgx.ErrNoRows); d.Duplicate {
			r, err = stmt.One[receivedRow](ctx, tx, receivedBefore.With(pg.Args{"namespace_id": queue, "sender": e.SenderID}))
		}
		if d.UUID, d.ExpiresAt, d.Steps = r.EventUUID, r.ExpiresAt, r.Steps; err != nil || d.Duplicate || d.Steps == 0 {
			return d, nil, err
		}
		d.Signals = board.ReportSignals()
		_, err = pg.Run(ctx, tx, markReceived.With(pg.Args{"event": d.UUID, "steps": d.Steps, "first": r.First}))
		return d, d.Signals, err
	})
}

// Index: the primary keys.
var addressOfTask = pg.Compile(`
select n.namespace_id, n.name, exists (select from tasker.board where task_uuid = @task and slot = 0) as alive
from tasker.namespaces n where n.namespace_id = (select queue from tasker.tasks where task_uuid = @task)`)

// Index: the unique name of namespaces.
var addressOfNamespace = pg.Compile(`select namespace_id, name, true as alive from tasker.namespaces where name = @name`)

// eventAddress is the namespace that an event is for.
func (s *Waits) eventAddress(ctx context.Context, tx pgx.Tx, e *ReceivedEvent) (queue int32, namespace string, err error) {
	type row struct {
		NamespaceID int32
		Name        string
		Alive       bool
	}
	find, whose := addressOfNamespace.With(pg.Args{"name": e.Namespace}), "namespace "+e.Namespace
	if e.TaskUUID != nil {
		find, whose = addressOfTask.With(pg.Args{"task": *e.TaskUUID}), "task "+e.TaskUUID.String()
	}
	r, err := pg.OneOf[row](ctx, tx, find)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		err = fmt.Errorf("%s: %w", whose, pg.ErrNotFound)
	case err == nil && !r.Alive:
		err = fmt.Errorf("%s: %w", whose, pg.ErrTaskEnded)
	}
	return r.NamespaceID, r.Name, err
}

// Brought is the result of BringEvents.
type Brought struct {
	Events  int
	Steps   int             // that have received them
	Signals []signal.Signal // to publish, unless the store sends them itself
}

// The statements that deliver domain events to the steps that wait for them. Of several
// with the same key the first is delivered, which ends the wait, and the others are kept.
// Index: the primary keys, board_awaits.
var (
	eventsToBring = pg.Compile(`
select d.event_uuid, 'e' || n.name || {separator} || e.name || {separator} || '=' || e.key as awaits
from (select event_uuid ` + firstDeliveries + ` for update skip locked) d
left join lateral (select * from tasker.domain_events where event_uuid = any (array[d.event_uuid]) order by event_uuid limit 1) e on true
left join tasker.namespaces n on n.namespace_id = e.namespace_id
order by e.position`)
	bringEvents = pg.Compile(`
with e as (
    insert into tasker.received_events (event_uuid, received_at, namespace_id, name, key, awaits, payload, expires_at)
    select d.event_uuid, d.fired_at, d.namespace_id, d.name, d.key, b.awaits, d.payload, clock_timestamp() + @keep_ms::bigint * interval '1 ms'
    from ` + stmt.List[awaitedEvent]("b") + `
    join tasker.domain_events d on d.event_uuid = any (array[b.event_uuid])
    on conflict (event_uuid) do nothing
    returning *
), first as materialized (
    select distinct on (awaits) * from e order by awaits, event_uuid
), reached as (
    update tasker.board s
    set state = {reported}, seq = nextval('tasker.step_seq'), due_at = null, reported_at = clock_timestamp(), awaits = null, outcome = {success},
        result = ` + eventResult + `
    from first e where s.awaits = any (array[e.awaits])
    returning s.task_uuid, e.event_uuid
)
select event_uuid, count(*)::int as steps, (array_agg(task_uuid))[1] as task_uuid from reached group by event_uuid`)
	markBrought = pg.Compile(`
update tasker.received_events r set delivered = b.steps, taken_by = b.task_uuid
from ` + stmt.List[broughtEvent]("b") + ` where r.event_uuid = any (array[b.event_uuid])`)
	dropBrought = pg.Compile(`delete from tasker.event_deliveries where event_uuid = any (@events::uuid[])`)
)

// firstDeliveries are the first domain events to deliver.
var firstDeliveries = `from tasker.event_deliveries where ` + pg.InRows("event_uuid") + ` order by event_uuid limit @limit`

// eventsOfDeliveries are the events that eventsToBring would take.
// Index: the primary key.
var eventsOfDeliveries = pg.Compile(`select event_uuid ` + firstDeliveries)

// EventsToBring returns the events that BringEvents would deliver.
func (s *Waits) EventsToBring(ctx context.Context, rows pg.Rows) ([]uuid.UUID, error) {
	return pg.ReadAll[uuid.UUID](ctx, s.db, "events_to_bring", "list the domain events to deliver", eventsOfDeliveries.With(rows.Args()))
}

// BringEvents delivers domain events, which are the keys of the rows, to the steps that
// wait for them, or keeps them for the first that will, as ReceiveEvent does.
func (s *Waits) BringEvents(ctx context.Context, rows pg.Rows, keepFor time.Duration) (Brought, error) {
	return pg.Change(ctx, s.db, "bring_events", "bring domain events to those who wait", func(ctx context.Context, tx pgx.Tx) (b Brought, _ []signal.Signal, err error) {
		events, err := stmt.All[awaitedEvent](ctx, tx, eventsToBring.With(rows.Args()))
		if err != nil || len(events) == 0 {
			return b, nil, err
		}
		b.Events = len(events)
		if b.Steps, err = deliver(ctx, tx, events, keepFor); err != nil {
			return b, nil, err
		}
		if b.Steps > 0 {
			b.Signals = board.ReportSignals()
		}
		all := pg.Column(events, func(e *awaitedEvent) [16]byte { return e.EventUUID })
		_, err = pg.Run(ctx, tx, dropBrought.With(pg.Args{"events": all}))
		return b, b.Signals, err
	})
}

// awaitedEvent is an event with a key.
type awaitedEvent struct {
	EventUUID uuid.UUID
	Awaits    string `sql:",omitzero"` // empty: its day was dropped; it is only forgotten
}

// broughtEvent is an event that ended waits.
type broughtEvent struct {
	EventUUID uuid.UUID
	Steps     int
	TaskUUID  uuid.UUID // the first of them
}

// deliver ends the waits for events, and returns their number.
func deliver(ctx context.Context, tx pgx.Tx, events []awaitedEvent, keepFor time.Duration) (steps int, err error) {
	awaited := slices.DeleteFunc(slices.Clone(events), func(e awaitedEvent) bool { return e.Awaits == "" })
	keys := pg.Column(awaited, func(e *awaitedEvent) string { return e.Awaits })
	if _, err := pg.Run(ctx, tx, lockEventKeys.With(pg.Args{"keys": keys})); err != nil {
		return 0, err
	}
	brought, err := stmt.All[broughtEvent](ctx, tx, bringEvents.With(pg.Args{"b": awaited, "keep_ms": stmt.Millis(keepFor)}))
	if err != nil || len(brought) == 0 {
		return 0, err
	}
	for i := range brought {
		steps += brought[i].Steps
	}
	_, err = pg.Run(ctx, tx, markBrought.With(pg.Args{"b": brought}))
	return steps, err
}
