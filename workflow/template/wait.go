package template

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/domainevent"
	"github.com/tasker-go/tasker/internal/enginestep"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/internal/span"
	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// maxPrompt bounds the prompt of an approval, in characters.
const maxPrompt = 1_000

// maxReferences bounds the references in the context of one step.
const maxReferences = 1_000

// usualSpan is the longest duration without a warning.
const usualSpan = 31 * 24 * time.Hour

// byEngine finishes a step that the engine runs, and reports keys without an effect on it. It
// is not retried unless the file says so: waiting twice gains nothing.
func (m *mapping) byEngine(s *workflow.StepTemplate) {
	for _, key := range []string{"handler", "timeout_seconds", "tags", "system_dependency"} {
		if v := m.get(key); v.node != nil {
			v.atKey().odd(codeIgnoredKey, "has no effect: no worker runs a step of type %s", s.Kind)
		}
	}
	s.TimeoutSeconds, s.Tags = 0, nil
	if m.get("retry").node == nil {
		s.Retry = workflow.RetryPolicy{MaxAttempts: 1, Backoff: workflow.BackoffExponential}
	}
}

// wait reads the block of a step that waits.
func (m *mapping) wait(s *workflow.StepTemplate) *workflow.WaitSettings {
	v, waits := m.get("wait"), s.Kind == workflow.KindSleep || s.Kind == workflow.KindWaitForEvent || s.Kind == workflow.KindApproval
	switch {
	case v.node != nil && !waits:
		v.atKey().odd(codeIgnoredKey, "has no effect: it belongs to a step of type %s, %s or %s", workflow.KindSleep, workflow.KindWaitForEvent, workflow.KindApproval)
		return nil
	case v.node == nil && waits && s.Kind != workflow.KindApproval:
		m.r.errorf(m.pos, codeRequired, v.path(), "%s is required for a step of type %s", v.path(), s.Kind)
	}
	b := v.mapping()
	if b == nil {
		return nil
	}
	w := &workflow.WaitSettings{}
	switch s.Kind {
	case workflow.KindSleep:
		span, moment := b.get("for"), b.get("until")
		w.For, w.Until = span.span(s), moment.moment(s)
		if (w.For == "") == (w.Until == "") && (span.node == nil) == (moment.node == nil) {
			b.errorf(codeRequired, "a step of type %s needs either for or until", s.Kind)
		}
	case workflow.KindWaitForEvent:
		w.Event, w.Key = b.name("event", domainevent.MaxName), b.get("key").eventKey(s)
	case workflow.KindApproval:
		w.Prompt = b.get("prompt").prompt()
		w.OnRejection = b.get("on_rejection").ending()
	}
	if s.Kind != workflow.KindSleep {
		w.Timeout, w.OnTimeout = b.get("timeout").span(nil), b.get("on_timeout").ending()
	}
	b.done()
	return w
}

// ending reads what happens to a step that did not get what it waited for.
func (v value) ending() string { return word(v, codeEnum, workflow.WaitFails, workflow.WaitContinues) }

// task reads the block of a step that is a task.
func (m *mapping) task(s *workflow.StepTemplate) *workflow.TaskSettings {
	v := m.get("task")
	switch {
	case v.node != nil && s.Kind != workflow.KindTask:
		v.atKey().odd(codeIgnoredKey, "has no effect: it belongs to a step of type %s", workflow.KindTask)
		return nil
	case v.node == nil && s.Kind == workflow.KindTask:
		m.r.errorf(m.pos, codeRequired, v.path(), "%s is required for a step of type %s: it says which task the step is", v.path(), workflow.KindTask)
	}
	b := v.mapping()
	if b == nil {
		return nil
	}
	namespace := b.get("namespace", "namespace_name")
	t := &workflow.TaskSettings{
		Name: b.name("name", maxTemplateName), Version: b.optionalName("version", maxVersion), Namespace: namespace.text(),
		Context:  b.get("context").subContext(s),
		Priority: b.get("priority").optional(within(priorities.Min, priorities.Max)),
		Timeout:  b.get("timeout").span(nil),
	}
	if t.Namespace != "" && (!namespacePattern.MatchString(t.Namespace) || len(t.Namespace) > maxNamespace) {
		namespace.atKey().errorf(codeFormat, "%.64q is not a namespace: letters, digits and underscores, up to %d", t.Namespace, maxNamespace)
	}
	b.done()
	return t
}

func (v value) subContext(s *workflow.StepTemplate) json.RawMessage {
	if v.node == nil {
		return nil
	}
	if v.kind != yamlMap && (v.kind != yamlString || !enginestep.IsReference(v.node.text)) {
		v.wrong(codeType, "has to be a mapping or a reference, not %s", v.kind)
		return nil
	}
	references := 0
	v.eachText(func(text string) {
		if !enginestep.IsReference(text) {
			return
		}
		switch references++; {
		case references < maxReferences+1:
			v.checkReference(text, s)
		case references == maxReferences+1:
			v.wrong(codeTooLarge, "has more than %d references", maxReferences)
		}
	})
	return v.raw()
}

// eachText visits the texts in a value, in the order of the file.
func (v value) eachText(visit func(text string)) {
	switch v.kind {
	case yamlString:
		visit(v.node.text)
	case yamlList:
		for _, item := range v.items {
			v.part(item).eachText(visit)
		}
	case yamlMap:
		for _, f := range v.fields {
			v.part(f.value).eachText(visit)
		}
	}
}

// span reads a duration; of a step that is given, it may be a reference.
func (v value) span(s *workflow.StepTemplate) string {
	text := v.text()
	switch {
	case !v.scalar():
		return ""
	case v.kind == yamlInt || v.kind == yamlFloat:
		shown := wording.Clip(text, 32)
		v.wrong(codeFormat, "is %s without a unit; write %ss or %sm, say", shown, shown, shown)
		return ""
	case s != nil && enginestep.IsReference(text):
		v.checkReference(text, s)
		return text
	}
	d, err := span.Parse(text)
	if err != nil {
		v.errorf(codeFormat, "%s: %s", v.path(), err)
		return ""
	}
	if d > usualSpan {
		v.odd(codeRange, "is longer than a month")
	}
	return text
}

// moment reads a point in time or a reference to one.
func (v value) moment(s *workflow.StepTemplate) string {
	text := v.text()
	switch _, err := span.Moment(text); {
	case !v.scalar():
	case enginestep.IsReference(text):
		v.checkReference(text, s)
	case err != nil:
		v.wrong(codeFormat, "is %.64q, which is not a moment such as 2030-01-31T09:00:00Z", text)
		return ""
	}
	return text
}

// eventKey reads a text that may be a reference.
func (v value) eventKey(s *workflow.StepTemplate) string {
	text := v.text()
	err := domainevent.CheckKey(strings.TrimPrefix(text, "$"))
	switch {
	case !v.scalar():
	case enginestep.IsReference(text):
		v.checkReference(text, s)
	case strings.TrimSpace(text) == "":
		v.wrong(codeRequired, "is empty")
	case err != nil:
		v.errorf(codeFormat, "%s: %s", v.path(), err)
	}
	return text
}

func (v value) checkReference(text string, s *workflow.StepTemplate) {
	if err := enginestep.CheckReference(text, s.Dependencies); err != nil {
		v.errorf(codeReference, "%s: %s", v.path(), err)
	}
}

func (v value) prompt() string {
	text := v.text()
	if n := utf8.RuneCountInString(text); n > maxPrompt {
		v.atKey().wrong(codeRange, "has %d characters; up to %d are allowed", n, maxPrompt)
	}
	return text
}
