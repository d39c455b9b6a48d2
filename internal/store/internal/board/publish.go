package board

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// MadeEvent is a worker's version of one declared event of a report, or an event of the
// handler's own.
type MadeEvent struct {
	Name     string          `json:"name,omitempty"`     // of one of the handler's own
	Payload  json.RawMessage `json:"payload,omitempty"`  // nil: the default
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object to merge
	Skip     string          `json:"skip,omitempty"`     // why it is not published
}

// MadeEvents are those of a report by the number of the declaration in the step, and those
// of the handler's own by OwnEvent. Missing ones have the default payload.
type MadeEvents map[int]MadeEvent

// OwnEvent is the number of an event of the handler's own, by its place among these.
func OwnEvent(place int) int { return -1 - place }

// own lists the events of the handler's own in their order.
func (m MadeEvents) own() (list []MadeEvent) {
	for e, ok := m[OwnEvent(0)]; ok; e, ok = m[OwnEvent(len(list))] {
		list = append(list, e)
	}
	return list
}

// Encode returns the form sent with the report; nil: all have the default payload.
func (m MadeEvents) Encode() (json.RawMessage, error) {
	if len(m) == 0 {
		return nil, nil
	}
	doc, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the events of a report: %w", err)
	}
	return doc, nil
}

// PublishedEvent is a durable event that a commit has published.
type PublishedEvent struct {
	UUID     uuid.UUID
	Position int64
	Task     uuid.UUID
	// CorrelationID is the task's.
	CorrelationID   uuid.UUID
	Namespace, Name string
	Own             bool // of the handler, whose template does not declare it
}

// readEvents reads the workers' versions of the events of their reports.
// Index: the primary key.
var readEvents = pg.Compile(`
select k.at, s.events from ` + stmt.OrderedHiddenList[StepKey]("k") + `
cross join lateral (select events from tasker.board where task_uuid = k.task_uuid and slot = any (array[0, k.step_no + 1]) and step_no = k.step_no limit 1) s
where s.events is not null`)

// readRest reads the parts of reports that the rules and the events need and that were
// not read with the tasks. It runs no statement if there are none.
func (t *Taken) readRest(ctx context.Context) error {
	if err := t.readOutcomes(ctx); err != nil {
		return err
	}
	var keys []StepKey
	var steps []*TakenStep
	var of []*TakenTask
	for task, r := range t.reports() {
		if r.Outcome != workflow.OutcomeLeaseLost && (r.publishes() || publishesDurably(task.Plan.Step(task.Progress, r.Step))) {
			keys, steps, of = append(keys, StepKey{task.UUID, r.Step}), append(steps, r), append(of, task)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	type row struct {
		At     int
		Events json.RawMessage
	}
	return stmt.Each(ctx, t.conn, readEvents.With(pg.Args{"k": keys}), func(r *row) {
		if err := json.Unmarshal(r.Events, &steps[r.At-1].Events); err != nil { // the other tasks must not be affected
			of[r.At-1].Broken = fmt.Errorf("read the events of step %d: %w", keys[r.At-1].StepNo, err)
		}
	})
}

// eventTurn is held from before the first position is drawn until the commit: a reader at
// a position will never see a smaller one appear. See docs/inside/decisions/0016.
var eventTurn = pg.Compile(`select pg_advisory_xact_lock(@class, @object)`)

// publishEvents writes durable events in order. It is the last statement of its
// transaction, because it reads the reports from the attempts in the ledger. A failure
// that no handler has reported (the worker was lost, or its result is invalid) has its
// reason as error.
// Index: the primary keys. An event whose publication has a key is delivered to the steps
// that wait for it.
var publishEvents = pg.Compile(`
with published as (
insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome,
                                  name, version, step_name, fired_by, payload, metadata, key, run)
select tasker.uuid_v7(), nextval('tasker.event_position'), o.task_uuid, coalesce(t.correlation_id, o.task_uuid), clock_timestamp(), o.namespace_id,
       o.step_no, o.attempt, o.outcome, o.name, '` + domainevent.Version + `', coalesce(o.step_name, d.name, ''), o.fired_by,
       p.payload, o.metadata::jsonb, substring(p.payload #>> string_to_array(o.key, '.') from '^[^[:cntrl:]]+$'), coalesce(d.run, 0)
from ` + stmt.OrderedList[newEvent]("o") + `
left join lateral (select result, error from tasker.step_attempts
                   where task_uuid = any (array[o.task_uuid]) and step_no = o.step_no and attempt = o.attempt order by token desc limit 1) a on true
left join lateral (select correlation_id from tasker.tasks where task_uuid = any (array[o.task_uuid])) t on true
left join lateral (select name, run from tasker.batches where o.step_name is null and task_uuid = any (array[o.task_uuid]) and step_no = o.step_no) d on true
cross join lateral (select coalesce(a.error, jsonb_build_object('message', o.reason, 'error_type', split_part(o.reason, ':', 1), 'retryable', false)) as doc) f
cross join lateral (
    select case when o.payload is not null then o.payload::jsonb
                when o.outcome = {success} then coalesce(a.result, 'null')
                else jsonb_build_object('error', f.doc, 'error_code', coalesce(f.doc->>'error_code', f.doc->>'error_type'), 'error_message', f.doc->>'message')
           end as payload) p
order by o.at
returning event_uuid, position, correlation_id, key
), awaited as (
    insert into tasker.event_deliveries (event_uuid) select event_uuid from published where octet_length(key) <= ` + maxEventKey + `
)
select event_uuid, position, correlation_id from published order by position`)

// maxEventKey is workflow.MaxEventKey.
const maxEventKey = "512"

// newEvent is a durable event to publish.
type newEvent struct {
	TaskUUID    uuid.UUID
	NamespaceID int32
	StepNo      int `sql:",smallint"`
	Attempt     int `sql:",smallint"`
	Outcome     workflow.AttemptOutcome
	Name        string
	StepName    string `sql:",omitzero"` // a batch has its own
	FiredBy     string
	Reason      string `sql:",omitzero"`
	Payload     json.RawMessage
	Metadata    json.RawMessage
	Key         string `sql:",omitzero"` // a path into the payload
}

// publishing are the durable events of a batch.
type publishing struct {
	events []newEvent
	about  []PublishedEvent // of each: the namespace, and Own; not sent
	keyed  bool             // one has a key
}

// add adds the events that follow the reports of a task. A concurrent action of an
// operator can change the outcome of a report; an end that the handler has not caused
// publishes nothing.
func (p *publishing) add(c *Change) {
	t := c.Task
	for i := range t.Reported {
		r := &t.Reported[i]
		step := t.Plan.Step(t.Progress, r.Step)
		if step == nil || len(step.Events) == 0 && !r.publishes() {
			continue
		}
		outcome, reason := c.Effects.OutcomeOf(r.Step)
		if r.Outcome != workflow.OutcomeSuccess && outcome == workflow.OutcomeSuccess {
			continue
		}
		// Events made for another outcome do not apply.
		own := r.Outcome != workflow.OutcomeLeaseLost && (r.Outcome == workflow.OutcomeSuccess) == (outcome == workflow.OutcomeSuccess)
		for no := range step.Events {
			if e := &step.Events[no]; e.Durable() && e.Follows(outcome) {
				p.event(t, r, step, no, outcome, reason, own)
			}
		}
		if r.publishes() && outcome == workflow.OutcomeSuccess {
			for _, e := range r.Events.own() {
				p.put(t, step, true, newEvent{TaskUUID: t.UUID, NamespaceID: t.Plan.Queue, StepNo: r.Step, Attempt: r.Attempt, Outcome: outcome,
					Name: e.Name, FiredBy: step.Handler.Callable, Payload: e.Payload})
			}
		}
	}
}

// publishes reports whether the handler has published events of its own.
func (s *TakenStep) publishes() bool { return s.Outcome == workflow.OutcomeSuccess && s.Retryable }

// event adds one. An event with a publisher that its publisher has not made is not
// published, except for failures that the engine has found: no worker has seen those, and
// they contain nothing from the handler.
func (p *publishing) event(t *TakenTask, r *TakenStep, step *workflow.PlanStep, no int, outcome workflow.AttemptOutcome, reason string, own bool) {
	e := &step.Events[no]
	made, known := r.Events[no]
	if !own {
		made = MadeEvent{}
	} else if made.Skip != "" || e.Publisher != "" && !known {
		return
	}
	p.put(t, step, false, newEvent{TaskUUID: t.UUID, NamespaceID: t.Plan.Queue, StepNo: r.Step, Attempt: r.Attempt, Outcome: outcome, Name: e.Name,
		FiredBy: e.FiredBy(step.StepTemplate), Reason: reason, Payload: made.Payload, Metadata: made.Metadata, Key: e.Key})
	p.keyed = p.keyed || e.Key != ""
}

func (p *publishing) put(t *TakenTask, step *workflow.PlanStep, own bool, event newEvent) {
	if event.StepNo < len(t.Plan.Steps) {
		event.StepName = step.Name
	}
	p.events = append(p.events, event)
	p.about = append(p.about, PublishedEvent{Task: t.UUID, Namespace: t.Plan.Template.Namespace, Name: event.Name, Own: own})
}

// signal adds the topic for readers of events.
func (p *publishing) signal(topics SignalSet) {
	if len(p.events) > 0 {
		topics.Add(signal.TopicEvents)
	}
}

// queue adds the statements that publish, if there are events; done receives the
// published ones.
func (p *publishing) queue(b *pgx.Batch, done *[]PublishedEvent) {
	if len(p.events) == 0 {
		return
	}
	type row struct {
		EventUUID     uuid.UUID
		Position      int64
		CorrelationID uuid.UUID
	}
	eventTurn.With(pg.Args{"class": int32(pg.TurnLock), "object": int32(pg.EventTurnObject)}).Queue(b)
	publishEvents.With(pg.Args{"o": p.events}).Queue(b).Query(stmt.Checked(func(r *row) error {
		at := len(*done)
		if at >= len(p.events) {
			return fmt.Errorf("publish events: more than the %d requested", len(p.events))
		}
		e := p.about[at]
		e.UUID, e.Position, e.CorrelationID = r.EventUUID, r.Position, r.CorrelationID
		*done = append(*done, e)
		return nil
	}))
}

// publishesDurably reports whether a step declares durable events. A nil step declares
// none.
func publishesDurably(s *workflow.PlanStep) bool {
	return s != nil && slices.ContainsFunc(s.Events, func(e workflow.Event) bool { return e.Durable() })
}
