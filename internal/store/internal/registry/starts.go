package registry

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/plainqueue"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// maxInlineSteps bounds the progress, which every version of a task's row on the board
// repeats: six bytes for each step.
const maxInlineSteps = 32

// Inlines reports whether the task's row on the board may carry its only step. Not if steps
// were created at run time (a new task, nil, has none), and not if the engine runs the step:
// that step has another queue.
func Inlines(p *workflow.Plan, progress *workflow.Progress, step int) bool {
	return len(p.Steps) <= maxInlineSteps && (progress == nil || len(progress.Groups) == 0) && !p.Steps[step].Kind.ByEngine()
}

// planStart is how the tasks of a plan begin, in the form of tasker.plan_starts: the
// functions of SQL that create tasks copy it. putPlanStarts adds the numbers of callables.
type planStart struct {
	Progress      string                    `json:"progress"`
	ProgressLater string                    `json:"progress_later"`
	StepNo        *int                      `json:"step_no"`
	StepTags      []string                  `json:"step_tags"`
	LastAttempt   *bool                     `json:"last_attempt"`
	Steps         []startStep               `json:"steps,omitempty"`
	ByEngine      bool                      `json:"by_engine"`
	Workers       []int                     `json:"workers"` // the first steps that workers run
	Priority      int                       `json:"priority"`
	Strategy      workflow.IdentityStrategy `json:"strategy"`
	WindowMS      *int64                    `json:"window_ms"`
	KeyWindowMS   *int64                    `json:"key_window_ms"`
	Calendar      *string                   `json:"calendar"`
	TimeZone      *string                   `json:"time_zone"`
	Input         *schema.Wants             `json:"input"`
	Refuses       *string                   `json:"refuses"`
}

// startStep is a first step with a row of its own.
type startStep struct {
	No          int      `json:"no"`
	ByEngine    bool     `json:"by_engine"`
	Tags        []string `json:"tags"`
	LastAttempt *bool    `json:"last_attempt"`
}

// newPlanStart prepares the start of a plan's tasks.
func newPlanStart(p *workflow.Plan) planStart {
	start := workflow.NewStart(p, nil, 0)
	s := planStart{Progress: bytea(start.Progress), ProgressLater: bytea(workflow.NewStart(p, nil, time.Second).Progress), Workers: []int{}}
	for _, put := range start.Put {
		step := &p.Steps[put.Step]
		if step.Kind.ByEngine() {
			s.ByEngine = true
		} else {
			s.Workers = append(s.Workers, put.Step)
		}
		last := orNil(p.LastAttempt(start.Progress, put.Step))
		if len(start.Put) == 1 && Inlines(p, nil, put.Step) {
			s.StepNo, s.StepTags, s.LastAttempt = &put.Step, emptyToNil(step.Tags), last
			continue
		}
		s.Steps = append(s.Steps, startStep{No: put.Step, ByEngine: step.Kind.ByEngine(), Tags: emptyToNil(step.Tags), LastAttempt: last})
	}
	if p.Template.Priority != nil {
		s.Priority = *p.Template.Priority
	}
	s.identify(p.Template.Identity)
	s.read(p.Template.InputSchema)
	if plainqueue.Has(p.Template) {
		s.Refuses = new("it is the template of a queue: submit its tasks over /tasks/v1")
	}
	return s
}

func (s *planStart) identify(policy *workflow.IdentityPolicy) {
	s.Strategy = dedup.StrategyOf(policy)
	end, ofKeys := dedup.EndOf(policy, false), dedup.EndOf(policy, true)
	s.WindowMS, s.Calendar, s.TimeZone = orNil(stmt.Millis(end.After)), orNil(string(end.Calendar)), orNil(end.TimeZone)
	if ofKeys != end {
		s.KeyWindowMS = orNil(stmt.Millis(ofKeys.After))
	}
}

// read takes over what the input schema wants, or the reason why SQL does not check it.
func (s *planStart) read(input json.RawMessage) {
	compiled, err := schema.Read(input)
	if err == nil {
		s.Input, err = compiled.Wants()
	}
	if err != nil {
		s.Refuses = orNil("of its input schema: " + err.Error())
	}
}

// bytea is a progress as PostgreSQL reads bytes.
func bytea(p *workflow.Progress) string { return fmt.Sprintf(`\x%x`, p.Encode()) }

// orNil is nil for a zero value.
func orNil[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

func emptyToNil(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

// putPlanStarts stores the starts of the current plans with the content of templates. A newer
// program may prepare more than the one that stored them before.
// Index: plans_current, the primary key.
var putPlanStarts = pg.Compile(`
insert into tasker.plan_starts as t
select (jsonb_populate_record(null::tasker.plan_starts, n.start::jsonb || jsonb_build_object('plan_id', p.plan_id,
    'callable', coalesce(p.callables[(n.start::jsonb ->> 'step_no')::int + 1], 0),
    'first', (select coalesce(jsonb_agg(distinct p.callables[w::int + 1]), '[]') from jsonb_array_elements(n.start::jsonb -> 'workers') w),
    'steps', (select jsonb_agg(s || jsonb_build_object('callable', p.callables[(s ->> 'no')::int + 1]) order by at)
              from jsonb_array_elements(n.start::jsonb -> 'steps') with ordinality u(s, at))))).*
from ` + stmt.List[registeredTemplate]("n") + `
join tasker.namespaces s on s.name = n.namespace
join tasker.plans p on p.namespace_id = s.namespace_id and p.name = n.name and p.version = n.version and p.current and p.content_hash = n.hash
on conflict (plan_id) do update set window_ms = excluded.window_ms, key_window_ms = excluded.key_window_ms, callable = excluded.callable, priority = excluded.priority,
    step_no = excluded.step_no, last_attempt = excluded.last_attempt, by_engine = excluded.by_engine, strategy = excluded.strategy, calendar = excluded.calendar,
    time_zone = excluded.time_zone, refuses = excluded.refuses, first = excluded.first, step_tags = excluded.step_tags, progress = excluded.progress,
    progress_later = excluded.progress_later, steps = excluded.steps, input = excluded.input
where row(t.*) is distinct from row(excluded.*)`)
