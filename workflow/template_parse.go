package workflow

import (
	"math"
	"regexp"
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
	maxEventName         = 255
	maxDependencies      = 10_000
	maxBackoffDelays     = 100
	maxMinutes           = math.MaxInt32 / 60
	maxTimeoutSeconds    = math.MaxInt32
	usualTimeoutSeconds  = 86_400
	overrideEverything   = "ALL" // the name that addresses every step
	defaultSystemPrimary = "default"
)

// ParseOption changes what ParseTemplate reports.
type ParseOption func(*templateReader)

// WithAdvice makes ParseTemplate also report, as info, possible improvements: steps without
// a result_schema.
func WithAdvice() ParseOption {
	return func(r *templateReader) { r.advice = true }
}

// ParseTemplate reads one template file. The file name is used in messages
// only. All problems are returned in the order of the file, warnings included;
// when one of them is an error the template is nil and the error is a
// *TemplateError. JSON is accepted too, as it is a subset of YAML; the JSON
// form of a Template reads back as an equal Template.
//
// The source may have up to 1 MiB; memory and time are bounded for any input.
func ParseTemplate(file string, src []byte, options ...ParseOption) (*Template, Problems, error) {
	r := &templateReader{file: file}
	for _, option := range options {
		option(r)
	}
	var t *Template
	if root := r.readDocument(src); root != nil {
		if m := r.mapping(root, ""); m != nil {
			t = r.template(m)
		}
	}
	problems := r.finish()
	if err := templateError(problems); err != nil {
		return nil, problems, err
	}
	return t, problems, nil
}

func (r *templateReader) template(m *mapping) *Template {
	t := &Template{
		Name:               m.name("name", maxTemplateName),
		Namespace:          r.namespace(m),
		Version:            r.version(m),
		Description:        m.text("description"),
		Metadata:           m.object("metadata"),
		SystemDependencies: r.systemDependencies(m.child("system_dependencies")),
		DomainEvents:       r.domainEvents(m),
		Lifecycle:          r.lifecycle(m.child("lifecycle")),
		OnFailure:          OnFailure(m.word("on_failure", CodeEnum, string(OnFailureFail), string(OnFailureBlock))),
		Identity:           r.identity(m),
		Priority:           r.priority(m),
	}
	var schema *yamlNode
	if t.InputSchema, schema = m.raw("input_schema"); schema != nil {
		r.checkSchema(schema, "input_schema", SeverityError)
		r.checkSchemaIsObject(schema, "input_schema")
	}
	var sources []stepSource
	t.Steps, sources = r.steps(m)
	t.Environments = r.environments(m, t.Steps)
	m.note(CodeLegacyKey, "tasks start with the context and the options of their request", "default_context", "default_options")
	m.note(CodeLegacyKey, "it is not part of the format", "loaded_from")
	m.done()
	r.checkSteps(t, sources)
	return t
}

var namespacePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// namespace reads the namespace, whose form and length a queue name limits.
func (r *templateReader) namespace(m *mapping) string {
	const key = "namespace_name"
	text := m.name(key, maxNamespace)
	if text == "" {
		return ""
	}
	at := m.node.field(key).value.pos
	if !namespacePattern.MatchString(text) {
		r.errorf(at, CodeFormat, key, "the namespace %q may contain only letters, digits and underscores and may not start with a digit", clip(text, 64))
	} else if len(text) > usualNamespace && len(text) <= maxNamespace {
		r.warnf(at, CodeNamespaceTooLong, key, "the namespace has %d characters; more than %d do not fit the queue names of other engines", len(text), usualNamespace)
	}
	return text
}

// version is the text of the file: 1.0 is "1.0", not the number one.
func (r *templateReader) version(m *mapping) string {
	const key = "version"
	text := m.name(key, maxVersion)
	if n := len([]rune(text)); n > usualVersion && n <= maxVersion {
		r.warnf(m.node.field(key).value.pos, CodeRange, key, "the version has %d characters; other engines keep %d", n, usualVersion)
	}
	return text
}

func (r *templateReader) systemDependencies(m *mapping) *SystemDependencies {
	if m == nil {
		return nil
	}
	d := &SystemDependencies{Primary: m.text("primary"), Secondary: m.texts("secondary")}
	if d.Primary == "" {
		d.Primary = defaultSystemPrimary
	}
	m.done()
	return d
}

func (r *templateReader) lifecycle(m *mapping) *Lifecycle {
	if m == nil {
		return nil
	}
	const week, month = 7 * 24 * 60, 30 * 24 * 60
	minutes := func(key string, usual int64) int {
		v, _ := m.integer(key, bounds{0, maxMinutes, 1, usual})
		return int(v)
	}
	l := &Lifecycle{
		MaxDurationMinutes:               minutes("max_duration_minutes", month),
		MaxWaitingForDependenciesMinutes: minutes("max_waiting_for_dependencies_minutes", week),
		MaxWaitingForRetryMinutes:        minutes("max_waiting_for_retry_minutes", week),
		MaxStepsInProcessMinutes:         minutes("max_steps_in_process_minutes", week),
		StalenessAction:                  m.text("staleness_action"),
		AutoFailOnTimeout:                m.boolean("auto_fail_on_timeout", false),
		AutoDLQOnTimeout:                 m.boolean("auto_dlq_on_timeout", false),
	}
	m.done()
	return l
}
