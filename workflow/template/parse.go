package template

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/span"
	"github.com/tasker-go/tasker/workflow"
)

// The limits of names, in characters, and of lists.
const (
	maxTemplateName      = 64
	maxStepName          = 128
	maxVersion           = 50
	usualVersion         = 16 // other engines of the family store no more
	maxNamespace         = 49 // a queue name has 63 bytes and starts with tasker_worker_
	usualNamespace       = 29 // other engines of the family have shorter queue names
	maxCallable          = 500
	maxDependencies      = 10_000
	maxBackoffDelays     = 100
	maxMinutes           = math.MaxInt32 / 60
	maxTimeoutSeconds    = math.MaxInt32
	usualTimeoutSeconds  = 86_400
	maxTimeZone          = 64
	defaultSystemPrimary = "default"
)

// Parse reads one template file. The file name is used in messages only. All problems are
// returned in the order of the file, warnings included; when one of them is an error the
// template is nil and the error is an *Error. JSON is accepted too, as it is a subset of
// YAML; the JSON form of a Template reads back as an equal Template.
//
// The source may have up to 1 MiB; memory and time are bounded for any input.
func Parse(file string, src []byte) (*workflow.Template, Problems, error) {
	r := &reader{file: file}
	var t *workflow.Template
	if root := r.readDocument(src); root != nil {
		if m := (value{node: root, r: r}).mapping(); m != nil {
			t = m.template()
		}
	}
	problems := r.finish()
	if err := errorOf(problems); err != nil {
		return nil, problems, err
	}
	return t, problems, nil
}

func (m *mapping) template() *workflow.Template {
	t := &workflow.Template{
		Name:               m.name("name", maxTemplateName),
		Namespace:          m.namespace(),
		Version:            m.version(),
		Description:        m.get("description").text(),
		Metadata:           m.get("metadata").object(),
		SystemDependencies: m.systemDependencies(),
		DomainEvents:       m.domainEvents(),
		InputSchema:        m.get("input_schema").schema(SeverityError),
		Lifecycle:          m.lifecycle(),
		OnFailure:          word(m.get("on_failure"), codeEnum, workflow.OnFailureFail, workflow.OnFailureBlock),
		Identity:           m.identity(),
		Priority:           m.priority(),
		Submission:         m.get("submission").submission(),
	}
	m.get("input_schema").requireObject()
	var sources []stepSource
	t.Steps, sources = m.steps()
	t.Environments = m.environments(t.Steps)
	m.note(codeLegacyKey, "tasks start with the context and the options of their request", "default_context", "default_options")
	m.note(codeLegacyKey, "it is not part of the format", "loaded_from")
	m.done()
	m.r.checkSteps(t, sources)
	return t
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// namespace reads the namespace, whose form and length a queue name limits.
func (m *mapping) namespace() string {
	text := m.name("namespace_name", maxNamespace)
	v := m.get("namespace_name")
	switch {
	case text == "":
	case !namespacePattern.MatchString(text):
		v.errorf(codeFormat, "the namespace %.64q may contain only letters, digits and underscores and may not start with a digit", text)
	case len(text) > usualNamespace && len(text) <= maxNamespace:
		v.warnf(codeNamespaceTooLong, "the namespace has %d characters; more than %d do not fit the queue names of other engines", len(text), usualNamespace)
	}
	return text
}

// version is the text of the file: 1.0 is "1.0", not the number one.
func (m *mapping) version() string {
	text := m.name("version", maxVersion)
	if n := utf8.RuneCountInString(text); n > usualVersion && n <= maxVersion {
		m.get("version").warnf(codeRange, "the version has %d characters; other engines keep %d", n, usualVersion)
	}
	return text
}

func (m *mapping) systemDependencies() *workflow.SystemDependencies {
	b := m.child("system_dependencies")
	if b == nil {
		return nil
	}
	d := &workflow.SystemDependencies{Primary: b.get("primary").text(), Secondary: b.get("secondary").words()}
	if d.Primary == "" {
		d.Primary = defaultSystemPrimary
	}
	b.done()
	return d
}

func (m *mapping) lifecycle() *workflow.Lifecycle {
	b := m.child("lifecycle")
	if b == nil {
		return nil
	}
	const week, month = 7 * 24 * 60, 30 * 24 * 60
	minutes := func(key string, usual int64) int { return b.get(key).integer(bounds{0, maxMinutes, 1, usual}) }
	l := &workflow.Lifecycle{
		MaxDurationMinutes:               minutes("max_duration_minutes", month),
		MaxWaitingForDependenciesMinutes: minutes("max_waiting_for_dependencies_minutes", week),
		MaxWaitingForRetryMinutes:        minutes("max_waiting_for_retry_minutes", week),
		MaxStepsInProcessMinutes:         minutes("max_steps_in_process_minutes", week),
		StalenessAction:                  b.get("staleness_action").text(),
		AutoFailOnTimeout:                b.get("auto_fail_on_timeout").boolean(false),
		AutoDLQOnTimeout:                 b.get("auto_dlq_on_timeout").boolean(false),
	}
	b.done()
	return l
}

// priority reads the template's default, as a priority or as a level; nil: none.
func (m *mapping) priority() *int {
	priority := m.get("priority").optional(within(priorities.Min, priorities.Max))
	v := m.get("priority_level")
	level := v.optional(within(priorities.MinLevel, priorities.MaxLevel))
	switch {
	case level == nil:
		return priority
	case priority != nil:
		v.atKey().errorf(codeDuplicateKey, "priority and priority_level both say how urgent a task is; keep one of them")
		return nil
	}
	p := priorities.OfLevel(*level)
	return &p
}

// identity reads the policy for duplicates: the key identity_strategy, as other engines of
// the family have it, and the block identity. nil: strict, for ever.
func (m *mapping) identity() *workflow.IdentityPolicy {
	p := &workflow.IdentityPolicy{Strategy: m.get("identity_strategy").strategy()}
	if b := m.child("identity"); b != nil {
		b.identityBlock(p)
		b.done()
	}
	if dedup.StrategyOf(p) == workflow.IdentityStrict && *p == (workflow.IdentityPolicy{Strategy: p.Strategy}) {
		return nil
	}
	return p
}

func (m *mapping) identityBlock(p *workflow.IdentityPolicy) {
	given := m.get("strategy")
	strategy := given.strategy()
	switch {
	case strategy == "":
	case p.Strategy != "" && p.Strategy != strategy:
		given.atKey().wrong(codeDuplicateKey, "(%s) contradicts identity_strategy (%s); keep one of them", strategy, p.Strategy)
	default:
		p.Strategy = strategy
	}
	p.Window, p.KeyLifetime = m.get("window").window(), m.get("key_lifetime").window()
	calendar, zone := m.get("calendar"), m.get("time_zone")
	p.Calendar = word(calendar, codeEnum, workflow.CalendarHour, workflow.CalendarDay, workflow.CalendarWeek)
	p.TimeZone = zone.text()
	p.Until = word(m.get("until"), codeEnum, workflow.UntilEnded, workflow.UntilSucceeded, workflow.UntilClaimed)
	switch {
	case p.Window != "" && p.Calendar != "":
		calendar.atKey().errorf(codeDuplicateKey, "window and calendar both say how long an identity counts; keep one of them")
	case p.TimeZone != "" && p.Calendar == "":
		zone.atKey().odd(codeIgnoredKey, "has no effect without calendar")
		p.TimeZone = ""
	case p.TimeZone != "" && !validTimeZone(p.TimeZone):
		zone.atKey().wrong(codeFormat, "is %.64q, and there is no time zone of that name", p.TimeZone)
	}
	if p.Strategy == workflow.IdentityAlwaysUnique && (p.Window != "" || p.Calendar != "" || p.Until != "") {
		m.warnf(codeIgnoredKey, "with always_unique a window counts for submissions with an idempotency key only")
	}
}

// strategy reads an identity strategy in lower or upper case.
func (v value) strategy() workflow.IdentityStrategy {
	text := v.text()
	if text == strings.ToUpper(text) {
		text = strings.ToLower(text)
	}
	switch s := workflow.IdentityStrategy(text); s {
	case workflow.IdentityStrict, workflow.IdentityCallerProvided, workflow.IdentityAlwaysUnique:
		return s
	}
	return word(v, codeEnum, workflow.IdentityStrict, workflow.IdentityCallerProvided, workflow.IdentityAlwaysUnique)
}

func (v value) window() string {
	text := strings.TrimSpace(v.text())
	if _, ok := span.ParseWindow(text); v.node == nil || ok {
		return text
	}
	v.wrong(codeFormat, "is %.32q; it has to be a duration such as 90m, 24h or 7d, from a second to ten years", text)
	return ""
}

// validTimeZone reports whether a name is in the IANA database and known to this program.
// Names for the local zone are rejected: they mean another zone on every machine.
func validTimeZone(name string) bool {
	if len(name) > maxTimeZone || strings.EqualFold(name, "local") {
		return false
	}
	_, err := time.LoadLocation(name)
	return err == nil
}

// environments reads the overrides of every environment; it reports an override of an
// unknown step.
func (m *mapping) environments(steps []workflow.StepTemplate) map[string]workflow.EnvironmentOverride {
	all := m.child("environments")
	if all == nil || len(all.fields) == 0 {
		return nil
	}
	names := map[string]bool{workflow.OverrideAll: true}
	for i := range steps {
		names[steps[i].Name] = true
	}
	out := make(map[string]workflow.EnvironmentOverride, len(all.fields))
	for _, f := range all.fields {
		var env workflow.EnvironmentOverride
		if b := all.child(f.key); b != nil {
			for _, item := range b.get("steps").list() {
				if o := item.mapping(); o != nil {
					env.Steps = append(env.Steps, o.override(names))
				}
			}
			b.done()
		}
		out[f.key] = env
	}
	return out
}

func (m *mapping) override(names map[string]bool) workflow.StepOverride {
	o := workflow.StepOverride{
		Name:           m.name("name", maxStepName),
		Initialization: m.get("initialization").object(),
		TimeoutSeconds: m.timeout(),
		Retry:          m.retry(),
	}
	if h := m.child("handler"); h != nil {
		if init := h.get("initialization").object(); o.Initialization == nil {
			o.Initialization = init
		} else {
			maps.Copy(o.Initialization, init)
		}
		h.note(codeIgnoredKey, "an environment can change only the initialization of a handler", "callable", "method", "resolver")
		h.done()
	}
	if o.Name != "" && !names[o.Name] {
		m.get("name").warnf(codeUnknownStep, "the override has no effect: there is no step %.64q%s", o.Name, suggestion(o.Name, slices.Sorted(maps.Keys(names))))
	}
	m.done()
	return o
}
