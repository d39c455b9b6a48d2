package template

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/limits"
	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// stepSource records the places of the parts of a step in the file.
type stepSource struct {
	path         string
	at           position // of the name, or of the step
	kind         position
	dependencies []position
	worker       position // of batch_config.worker_template
	placeholder  position // of handler.initialization.worker_template_name
	compensation position
}

func (m *mapping) steps() ([]workflow.StepTemplate, []stepSource) {
	v := m.get("steps")
	items := v.list()
	switch {
	case len(items) == 0 && (v.node == nil || v.kind == yamlList):
		v.atKey().wrong(codeRequired, "is required: a template needs at least one step")
	case len(items) > workflow.MaxSteps:
		m.r.errorf(items[workflow.MaxSteps].pos, codeTooLarge, v.path(), "the template has %d steps; up to %d are allowed", len(items), workflow.MaxSteps)
		items = items[:workflow.MaxSteps]
	}
	steps := make([]workflow.StepTemplate, 0, len(items))
	sources := make([]stepSource, 0, len(items))
	for _, item := range items {
		if b := item.mapping(); b != nil {
			step, source := b.step()
			steps = append(steps, step)
			sources = append(sources, source)
		}
	}
	return steps, sources
}

func (m *mapping) step() (workflow.StepTemplate, stepSource) {
	kind, undo := m.get("type", "step_type"), m.get("compensation")
	s := workflow.StepTemplate{
		Name:             m.name("name", maxStepName),
		Description:      m.get("description").text(),
		Kind:             kind.stepKind(),
		SystemDependency: m.get("system_dependency").text(),
		Retry:            defaultRetry(),
		TimeoutSeconds:   m.timeout(),
		PublishesEvents:  m.publications(),
		ResultSchema:     m.get("result_schema").schema(severityWarning),
		Composition:      m.get("composition").raw(),
		Tags:             m.get("tags").words(),
		Compensation:     undo.text(),
	}
	m.get("result_schema").requireObject()
	if retry := m.retry(); retry != nil {
		s.Retry = *retry
	}
	source := stepSource{path: m.path, at: m.get("name").place(), kind: kind.place(), compensation: undo.place(),
		placeholder: m.at([]string{"handler", "initialization", "worker_template_name"}).pos}
	s.Join = m.joining(s.Kind)
	s.Dependencies, source.dependencies = m.dependencies()
	s.Batch, source.worker = m.batch(s.Kind)
	s.Wait, s.Task = m.wait(&s), m.task(&s)
	if s.Kind.ByEngine() {
		m.byEngine(&s)
	} else {
		s.Handler = m.handler()
		s.Limit = m.get("limit").limit()
	}
	m.note(codeLegacyKey, "age limits belong to the template, not to a step", "lifecycle")
	m.done()
	return s, source
}

func (v value) stepKind() workflow.StepKind {
	var kind workflow.StepKind
	if err := kind.UnmarshalText([]byte(v.text())); err == nil || !v.scalar() {
		return cmp.Or(kind, workflow.KindStandard)
	}
	var names []string
	for kind := workflow.KindStandard; kind <= workflow.KindTask; kind++ {
		names = append(names, kind.String())
	}
	word(v, codeEnum, names...)
	return workflow.KindStandard
}

func (m *mapping) joining(kind workflow.StepKind) workflow.Join {
	v := m.get("join")
	join := word(v, codeEnum, workflow.JoinAll, workflow.JoinExisting)
	if kind == workflow.KindDeferredConvergence && join == workflow.JoinAll {
		v.atKey().odd(codeIgnoredKey, "has no effect: a deferred_convergence waits for the parents that exist")
		return ""
	}
	return join
}

func (m *mapping) dependencies() (names []string, places []position) {
	items := m.get("dependencies", "depends_on").texts()
	if len(items) > maxDependencies {
		items[maxDependencies].errorf(codeTooLarge, "the step has %d dependencies; up to %d are allowed", len(items), maxDependencies)
		items = items[:maxDependencies]
	}
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		name := item.text()
		if seen[name] {
			item.warnf(codeDuplicateDependency, "the dependency %.64q is listed twice", name)
			continue
		}
		seen[name] = true
		names = append(names, name)
		places = append(places, item.pos)
	}
	return names, places
}

// handler accepts, besides the mapping, the bare address of the handler.
func (m *mapping) handler() workflow.HandlerReference {
	v := m.require("handler")
	if v.node != nil && v.kind == yamlString {
		v.odd(codeType, "is read as the callable; write {callable: …}")
		return workflow.HandlerReference{Callable: v.callable()}
	}
	b := v.mapping()
	if b == nil {
		return workflow.HandlerReference{}
	}
	h := workflow.HandlerReference{
		Callable:       b.get("callable").callable(),
		Method:         b.get("method").text(),
		Resolver:       b.get("resolver").text(),
		Initialization: b.get("initialization").object(),
	}
	b.done()
	return h
}

func (v value) callable() string {
	text := v.text()
	switch n := utf8.RuneCountInString(text); {
	case v.node == nil:
		v.atKey().wrong(codeEmptyCallable, "is required: it says which code runs the step")
	case !v.scalar():
	case strings.TrimSpace(text) == "":
		v.wrong(codeEmptyCallable, "is empty: it says which code runs the step")
	case n > maxCallable:
		v.wrong(codeRange, "has %d characters; up to %d are allowed", n, maxCallable)
	}
	return text
}

// timeout reads the time limit of a step, in seconds.
func (m *mapping) timeout() int {
	v := m.get("timeout_seconds")
	n := v.optional(bounds{0, maxTimeoutSeconds, 0, usualTimeoutSeconds})
	switch {
	case n == nil:
		return 0
	case *n == 0:
		v.odd(codeRange, "is 0: the worker's default applies")
	}
	return *n
}

func (m *mapping) batch(kind workflow.StepKind) (*workflow.BatchSettings, position) {
	v := m.get("batch_config")
	b := v.mapping()
	if b == nil {
		return nil, v.place()
	}
	s := &workflow.BatchSettings{
		BatchSize:        b.require("batch_size").integer(bounds{1, 1 << 30, 1, 100_000}),
		Parallelism:      b.require("parallelism").integer(bounds{1, 1 << 30, 1, 1_000}),
		CursorField:      b.nameIfAny("cursor_field", maxStepName),
		WorkerTemplate:   b.nameIfAny("worker_template", maxStepName),
		FailureStrategy:  word(b.require("failure_strategy"), codeEnum, workflow.ContinueOnFailure, workflow.FailFast, workflow.IsolateFailed),
		MaxFailedWorkers: b.get("max_failed_workers").optional(within(0, workflow.MaxStepNumber)),
		MinSuccessRatio:  b.get("min_success_ratio").share(),
	}
	if s.FailureStrategy == workflow.FailFast && (s.MaxFailedWorkers != nil || s.MinSuccessRatio != nil) {
		b.get("failure_strategy").atKey().warnf(codeIgnoredKey,
			"with %s the first failure ends the batches: max_failed_workers and min_success_ratio have no effect", workflow.FailFast)
	}
	b.note(codeLegacyKey, "handlers decide when to checkpoint", "checkpoint_interval")
	b.done()
	if kind != workflow.KindBatchWorker {
		v.atKey().odd(codeIgnoredKey, "has no effect: it belongs to a step of type batch_worker")
	}
	return s, b.get("worker_template").place()
}

// The default values of a retry block.
const (
	defaultMaxAttempts = 3
	defaultBaseMS      = 1_000
	defaultMaxMS       = 30_000
)

// The bounds of the delays in a retry block.
const (
	maxDelayMS   = 365 * 24 * 3_600_000 // a year
	usualDelayMS = 3_600_000            // an hour
)

// defaultRetry is the policy of a step without a retry block.
func defaultRetry() workflow.RetryPolicy {
	return workflow.RetryPolicy{
		Retryable: true, MaxAttempts: defaultMaxAttempts, Backoff: workflow.BackoffExponential,
		BaseMS: defaultBaseMS, MaxMS: defaultMaxMS,
	}
}

// retry is nil when the block is absent. In a present block, missing delays are those of the
// configuration (0).
func (m *mapping) retry() *workflow.RetryPolicy {
	b := m.child("retry")
	if b == nil {
		return nil
	}
	longest := b.get("max_backoff_ms")
	p := &workflow.RetryPolicy{
		Retryable:   b.get("retryable").boolean(true),
		MaxAttempts: b.get("max_attempts").attempts(),
		Backoff: word(b.get("backoff"), codeEnum, workflow.BackoffExponential, workflow.BackoffLinear, workflow.BackoffFixed,
			workflow.BackoffFibonacci, workflow.BackoffList, workflow.BackoffNone),
		BaseMS: int64(b.get("backoff_base_ms").integer(bounds{0, maxDelayMS, 100, usualDelayMS})),
		MaxMS:  int64(longest.integer(bounds{0, maxDelayMS, 1_000, usualDelayMS})),
	}
	if p.MaxMS > 0 && p.MaxMS < p.BaseMS {
		longest.atKey().odd(codeRange, "(%d) is less than backoff_base_ms (%d): every delay is %[1]d ms", p.MaxMS, p.BaseMS)
	}
	b.backoffList(p)
	b.note(codeLegacyKey, "use max_attempts", "limit")
	b.note(codeLegacyKey, "use backoff_base_ms", "initial_delay")
	b.note(codeLegacyKey, "use max_backoff_ms", "max_delay")
	b.done()
	return p
}

// limit reads a limit of the step's callable.
func (v value) limit() *workflow.Limit { return rule[workflow.Limit](v) }

// rule reads a block in the form of the API; nil when it is absent or unusable.
func rule[T any, R interface {
	*T
	Check(problem func(format string, args ...any))
}](v value) R {
	if v.node == nil {
		return nil
	}
	var l T
	d := json.NewDecoder(bytes.NewReader(v.raw()))
	if d.DisallowUnknownFields(); v.mapping() == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	switch err := d.Decode(&l); {
	case errors.As(err, &wrong):
		v.wrong(codeType, "is no limit: %s cannot be a %s", wrong.Field, wrong.Value)
		return nil
	case err != nil:
		v.wrong(codeType, "is no limit: %s", strings.TrimPrefix(err.Error(), "json: "))
		return nil
	}
	R(&l).Check(func(format string, args ...any) { v.wrong(codeRange, "is no limit: "+format, args...) })
	return &l
}

// attempts turns 0 into 1: the first attempt of a step always runs.
func (v value) attempts() int {
	if v.node == nil {
		return defaultMaxAttempts
	}
	if n, ok := v.wholeNumber(); ok && n == 0 {
		v.odd(codeRange, "is 0 in line %d and read as 1: the first attempt always runs", v.pos.line)
		return 1
	}
	if n := v.optional(bounds{0, limits.MaxAttempts, 1, 100}); n != nil {
		return *n
	}
	return defaultMaxAttempts
}

// backoffList reads the delays of the list strategy, in milliseconds or in seconds. Delays
// without a strategy choose the list strategy.
func (m *mapping) backoffList(p *workflow.RetryPolicy) {
	v, unit, seconds := m.get("backoff_delays_ms"), 1.0, m.get("delays_seconds")
	items, others := v.list(), seconds.list()
	switch {
	case len(items) > 0 && len(others) > 0:
		seconds.atKey().odd(codeIgnoredKey, "has no effect beside backoff_delays_ms")
	case len(others) > 0:
		v, unit, items = seconds, 1000, others
	}
	if len(items) > maxBackoffDelays {
		m.r.errorf(items[maxBackoffDelays].pos, codeTooLarge, v.path(), "%s has %d entries; up to %d are allowed", v.path(), len(items), maxBackoffDelays)
		return
	}
	if p.Backoff == "" && len(items) > 0 {
		p.Backoff = workflow.BackoffList
	}
	switch p.Backoff = cmp.Or(p.Backoff, workflow.BackoffExponential); {
	case p.Backoff != workflow.BackoffList && len(items) > 0:
		v.atKey().odd(codeIgnoredKey, "has no effect: backoff is %s, not list", p.Backoff)
	case p.Backoff == workflow.BackoffList && len(items) == 0:
		m.r.errorf(m.get("backoff").key, codeRequired, v.path(), "backoff list needs backoff_delays_ms or delays_seconds")
	case p.Backoff == workflow.BackoffList:
		for _, item := range items {
			p.DelaysMS = append(p.DelaysMS, item.delay(unit))
		}
	}
}

// delay reads one entry; seconds may have a fraction.
func (v value) delay(unit float64) int64 {
	ms, err := strconv.ParseFloat(v.number.String(), 64)
	if err != nil {
		v.wrong(codeType, "has to be a number, not %s", v.kind)
		return 0
	}
	ms = math.Round(ms * unit)
	switch {
	case ms < 0 || ms > maxDelayMS:
		v.wrong(codeRange, "is %s; a delay has to be from 0 to a year", wording.Clip(v.node.text, 32))
		return 0
	case ms > usualDelayMS:
		v.odd(codeRange, "is longer than an hour")
	}
	return int64(ms)
}

// The values of EventPublication that a file may leave out.
const (
	defaultCondition    = "success"
	defaultDeliveryMode = "durable"
)

var eventNamePattern = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`)

func (m *mapping) domainEvents() []workflow.DomainEventDeclaration {
	var events []workflow.DomainEventDeclaration
	for _, item := range m.get("domain_events").list() {
		if item.kind == yamlString {
			events = append(events, workflow.DomainEventDeclaration{Name: item.text()})
		} else if b := item.mapping(); b != nil {
			events = append(events, workflow.DomainEventDeclaration{Name: b.name("name", domainevent.MaxName),
				Description: b.get("description").text(), Schema: b.get("schema").schema(severityWarning)})
			b.done()
		}
	}
	return events
}

func (m *mapping) publications() []workflow.EventPublication {
	var events []workflow.EventPublication
	for _, item := range m.get("publishes_events").list() {
		if item.kind == yamlString {
			item.checkEventName()
			events = append(events, workflow.EventPublication{Name: item.text(), Condition: defaultCondition, DeliveryMode: defaultDeliveryMode})
		} else if b := item.mapping(); b != nil {
			events = append(events, b.publication())
		}
	}
	return events
}

func (m *mapping) publication() workflow.EventPublication {
	name, key := m.get("name"), m.get("key")
	e := workflow.EventPublication{
		Name:         m.name("name", domainevent.MaxName),
		Description:  m.get("description").text(),
		Condition:    word(m.get("condition"), codeEnum, "success", "failure", "retryable_failure", "permanent_failure", "always"),
		DeliveryMode: word(m.get("delivery_mode"), codeUnknownDelivery, "durable", "fast", "broadcast"),
		Publisher:    m.get("publisher").text(),
		Key:          key.text(),
		Schema:       m.get("schema").schema(severityWarning),
	}
	if e.Key != "" && e.DeliveryMode == "fast" {
		key.atKey().odd(codeIgnoredKey, "has no effect: fast events are not kept for steps that wait")
	}
	if err := domainevent.CheckKey(e.Key); err != nil {
		key.atKey().errorf(codeFormat, "%s: %s", key.path(), err)
	}
	e.Condition, e.DeliveryMode = cmp.Or(e.Condition, defaultCondition), cmp.Or(e.DeliveryMode, defaultDeliveryMode)
	if e.Name != "" {
		name.checkEventName()
	}
	if e.Schema == nil {
		m.r.warnf(m.pos, codeRequired, m.join("schema"), "%s is missing: the payload of the event is not checked", m.join("schema"))
	}
	m.done()
	return e
}

func (v value) checkEventName() {
	if v.scalar() && !eventNamePattern.MatchString(v.node.text) {
		v.warnf(codeFormat, "the event name %.64q is not in lower case with at least one dot, like order.created", v.node.text)
	}
}
