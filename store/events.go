package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// MadeEvent is a worker's version of one declared event of a report.
type MadeEvent struct {
	Payload  json.RawMessage `json:"payload,omitempty"`  // nil: the default
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object to merge
	Skip     string          `json:"skip,omitempty"`     // why it is not published
}

// MadeEvents are those of a report by the number of the declaration in the step. Missing
// ones have the default payload.
type MadeEvents map[int]MadeEvent

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
}

// readEvents reads the workers' versions of the events of their reports.
// Index: the primary key.
const readEvents = `
select k.at, s.events from unnest((select $1::uuid[]), (select $2::smallint[])) with ordinality k(task_uuid, step_no, at)
cross join lateral (select events from tasker.board where task_uuid = k.task_uuid and slot = any (array[0, k.step_no + 1]) and step_no = k.step_no limit 1) s
where s.events is not null`

// readRest reads the parts of reports that the rules and the events need and that were
// not read with the tasks. It runs no statement if there are none.
func (t *Taken) readRest(ctx context.Context) error {
	if err := t.readOutcomes(ctx); err != nil {
		return err
	}
	var tasks uuids
	var numbers []int16
	var steps []*TakenStep
	var of []*TakenTask
	for i := range t.Tasks {
		task := &t.Tasks[i]
		if task.Broken != nil || task.Unreadable != nil {
			continue
		}
		for j := range task.Reported {
			r := &task.Reported[j]
			if r.Outcome != workflow.OutcomeLeaseLost && task.Plan.Step(task.Progress, r.Step).PublishesDurably() {
				tasks, numbers, steps = append(tasks, task.UUID), append(numbers, int16(r.Step)), append(steps, r) // #nosec G115 -- as it came
				of = append(of, task)
			}
		}
	}
	if len(steps) == 0 {
		return nil
	}
	rows, err := t.conn.Query(ctx, readEvents, tasks, numbers)
	if err != nil {
		return err
	}
	var at int
	var doc []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &doc}, func() error {
		if err := json.Unmarshal(doc, &steps[at-1].Events); err != nil { // the other tasks must not be affected
			of[at-1].Broken = fmt.Errorf("read the events of step %d: %w", numbers[at-1], err)
		}
		return nil
	})
	return err
}

// eventTurn is held from before the first position is drawn until the commit: a reader at
// a position will never see a smaller one appear. See docs/decisions/0016.
const (
	eventTurn       = `select pg_advisory_xact_lock($1, $2)`
	eventTurnObject = -3 // of the class turnLock
)

// publishEvents writes durable events in order. It is the last statement of its
// transaction, because it reads the reports from the attempts in the ledger. A failure
// that no handler has reported (the worker was lost, or its result is invalid) has its
// reason as error.
// Index: the primary keys. An event whose publication has a key is delivered to the steps
// that wait for it.
const publishEvents = `
with published as (
insert into tasker.domain_events (event_uuid, position, task_uuid, correlation_id, fired_at, namespace_id, step_no, attempt, outcome,
                                  name, version, step_name, fired_by, payload, metadata, key, run)
select tasker.uuid_v7(), nextval('tasker.event_position'), o.task_uuid, coalesce(t.correlation_id, o.task_uuid), clock_timestamp(), o.namespace_id,
       o.step_no, o.attempt, o.outcome, o.name, '` + workflow.EventVersion + `', coalesce(o.step_name, d.name, ''), o.fired_by,
       p.payload, o.metadata::jsonb, substring(p.payload #>> string_to_array(o.key, '.') from '^[^[:cntrl:]]+$'), coalesce(d.run, 0)
from unnest($1::uuid[], $2::int[], $3::smallint[], $4::smallint[], $5::smallint[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
            $12::text[])
     with ordinality o(task_uuid, namespace_id, step_no, attempt, outcome, name, step_name, fired_by, reason, payload, metadata, key, at)
left join lateral (select result, error from tasker.step_attempts
                   where task_uuid = any (array[o.task_uuid]) and step_no = o.step_no and attempt = o.attempt order by token desc limit 1) a on true
left join lateral (select correlation_id from tasker.tasks where task_uuid = any (array[o.task_uuid])) t on true
left join lateral (select name, run from tasker.batches where o.step_name is null and task_uuid = any (array[o.task_uuid]) and step_no = o.step_no) d on true
cross join lateral (select coalesce(a.error, jsonb_build_object('message', o.reason, 'error_type', split_part(o.reason, ':', 1), 'retryable', false)) as doc) f
cross join lateral (
    select case when o.payload is not null then o.payload::jsonb
                when o.outcome = 1 then coalesce(a.result, 'null')
                else jsonb_build_object('error', f.doc, 'error_code', coalesce(f.doc->>'error_code', f.doc->>'error_type'), 'error_message', f.doc->>'message')
           end as payload) p
order by o.at
returning event_uuid, position, correlation_id, key
), awaited as (
    insert into tasker.event_deliveries (event_uuid) select event_uuid from published where octet_length(key) <= ` + maxEventKey + `
)
select event_uuid, position, correlation_id from published order by position`

// maxEventKey is workflow.MaxEventKey.
const maxEventKey = "512"

// publishColumns are the durable events of a batch, column by column.
type publishColumns struct {
	tasks                     uuids
	namespaces                []int32
	steps, attempts, outcomes []int16
	names, firedBy            []string
	stepNames, reasons        []*string
	payloads, metadata        []*string
	keys                      []*string // paths into the payloads
	spaces                    []string  // the names of the namespaces; not sent
	keyed                     bool      // one has a key
}

// add adds the events that follow the reports of a task. A concurrent action of an
// operator can change the outcome of a report; an end that the handler has not caused
// publishes nothing.
func (p *publishColumns) add(c *Change) {
	t := c.Task
	for i := range t.Reported {
		r := &t.Reported[i]
		step := t.Plan.Step(t.Progress, r.Step)
		if step == nil || len(step.Events) == 0 {
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
	}
}

// event adds one. An event with a publisher that its publisher has not made is not
// published, except for failures that the engine has found: no worker has seen those, and
// they contain nothing from the handler.
func (p *publishColumns) event(t *TakenTask, r *TakenStep, step *workflow.PlanStep, no int, outcome workflow.AttemptOutcome, reason string, own bool) {
	e := &step.Events[no]
	made, known := r.Events[no]
	if !own {
		made = MadeEvent{}
	} else if made.Skip != "" || e.Publisher != "" && !known {
		return
	}
	p.tasks, p.namespaces = append(p.tasks, t.UUID), append(p.namespaces, t.Plan.Queue)
	p.steps, p.attempts = append(p.steps, int16(r.Step)), append(p.attempts, int16(r.Attempt)) // #nosec G115 -- as it came
	p.outcomes, p.names = append(p.outcomes, int16(outcome)), append(p.names, e.Name)
	var name *string // a batch has its own
	if r.Step < len(t.Plan.Steps) {
		name = &step.Name
	}
	p.stepNames, p.firedBy = append(p.stepNames, name), append(p.firedBy, e.FiredBy(step.StepTemplate))
	p.reasons = append(p.reasons, text(reason))
	p.payloads, p.metadata = append(p.payloads, jsonText(made.Payload)), append(p.metadata, jsonText(made.Metadata))
	p.spaces, p.keys = append(p.spaces, t.Plan.Template.Namespace), append(p.keys, text(e.Key))
	p.keyed = p.keyed || e.Key != ""
}

// signal adds the topic for readers of events.
func (p *publishColumns) signal(topics signalSet) {
	if len(p.tasks) > 0 {
		topics.add(signal.TopicEvents)
	}
}

// queue adds the statements that publish, if there are events; done receives the
// published ones.
func (p *publishColumns) queue(b *pgx.Batch, done *[]PublishedEvent) {
	if len(p.tasks) == 0 {
		return
	}
	b.Queue(eventTurn, int32(turnLock), int32(eventTurnObject))
	b.Queue(publishEvents, p.arguments()...).Query(func(rows pgx.Rows) error {
		var e PublishedEvent
		list := make([]PublishedEvent, 0, len(p.tasks))
		_, err := pgx.ForEachRow(rows, []any{(*[16]byte)(&e.UUID), &e.Position, (*[16]byte)(&e.CorrelationID)}, func() error {
			at := len(list)
			if at >= len(p.tasks) {
				return fmt.Errorf("publish events: more than the %d requested", len(p.tasks))
			}
			e.Task, e.Namespace, e.Name = uuid.UUID(p.tasks[at]), p.spaces[at], p.names[at]
			list = append(list, e)
			return nil
		})
		*done = list
		return err
	})
}

func (p *publishColumns) arguments() []any {
	return []any{p.tasks, p.namespaces, p.steps, p.attempts, p.outcomes, p.names, p.stepNames, p.firedBy, p.reasons, p.payloads, p.metadata, p.keys}
}

// Event is a stored durable domain event.
type Event struct {
	UUID          uuid.UUID
	Position      int64
	Namespace     string
	Name, Version string
	Payload       json.RawMessage
	Metadata      json.RawMessage // added by a publisher; nil: none
	Task          uuid.UUID
	Step, Run     int // see BatchUUID
	StepName      string
	Attempt       int
	Outcome       workflow.AttemptOutcome
	CorrelationID uuid.UUID
	FiredAt       time.Time
	FiredBy       string
}
