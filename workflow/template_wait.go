package workflow

import (
	"strings"
	"time"
	"unicode/utf8"
)

// maxPrompt bounds the prompt of an approval, in characters.
const maxPrompt = 1_000

// engineRetry is the policy of a step that the engine runs and that has no retry block:
// waiting twice gains nothing.
func engineRetry() RetryPolicy {
	return RetryPolicy{MaxAttempts: 1, Backoff: BackoffExponential}
}

// engineStep reads the keys of steps that the engine runs itself, and reports keys without
// an effect on them.
func (r *templateReader) engineStep(m *mapping, s *StepTemplate) {
	s.Wait, s.Task = r.wait(m, s), r.task(m, s)
	if !s.Kind.ByEngine() {
		return
	}
	for _, key := range []string{"handler", "timeout_seconds", "tags", "system_dependency"} {
		if f := m.node.field(key); f != nil && f.value.kind != yamlNull {
			r.warnf(f.pos, CodeIgnoredKey, m.join(key), "%s has no effect: no worker runs a step of type %s", m.join(key), s.Kind)
		}
	}
	s.Handler, s.TimeoutSeconds, s.Tags = HandlerReference{}, 0, nil
	if m.get("retry") == nil {
		s.Retry = engineRetry()
	}
}

// wait reads the block of a step that waits.
func (r *templateReader) wait(m *mapping, s *StepTemplate) *WaitSettings {
	waits := s.Kind == KindSleep || s.Kind == KindWaitForEvent || s.Kind == KindApproval
	n := m.get("wait")
	switch {
	case n != nil && !waits:
		r.warnf(m.position("wait"), CodeIgnoredKey, m.join("wait"), "%s has no effect: it belongs to a step of type %s, %s or %s",
			m.join("wait"), KindSleep, KindWaitForEvent, KindApproval)
		return nil
	case n == nil && waits:
		if s.Kind != KindApproval {
			r.errorf(m.node.pos, CodeRequired, m.join("wait"), "%s is required for a step of type %s", m.join("wait"), s.Kind)
		}
		return nil
	case n == nil:
		return nil
	}
	wm := r.mapping(n, m.join("wait"))
	if wm == nil {
		return nil
	}
	w := &WaitSettings{}
	switch s.Kind {
	case KindSleep:
		w.For, w.Until = r.span(wm, "for", true, s), r.moment(wm, "until", s)
		if (w.For == "") == (w.Until == "") && !r.failed(wm, "for", "until") {
			r.errorf(wm.node.pos, CodeRequired, wm.path, "a step of type %s needs either for or until", s.Kind)
		}
	case KindWaitForEvent:
		w.Event = wm.name("event", maxEventName)
		w.Key = r.referring(wm, "key", s)
		w.Timeout, w.OnTimeout = r.span(wm, "timeout", false, s), wm.word("on_timeout", CodeEnum, WaitFails, WaitContinues)
	case KindApproval:
		w.Prompt = r.prompt(wm)
		w.Timeout, w.OnTimeout = r.span(wm, "timeout", false, s), wm.word("on_timeout", CodeEnum, WaitFails, WaitContinues)
		w.OnRejection = wm.word("on_rejection", CodeEnum, WaitFails, WaitContinues)
	}
	wm.done()
	return w
}

// failed reports whether a key is present: then its value was reported.
func (r *templateReader) failed(m *mapping, keys ...string) bool {
	there := 0
	for _, key := range keys {
		if f := m.node.field(key); f != nil && f.value.kind != yamlNull {
			there++
		}
	}
	return there == 1
}

// task reads the block of a step that is a task.
func (r *templateReader) task(m *mapping, s *StepTemplate) *TaskSettings {
	n := m.get("task")
	switch {
	case n != nil && s.Kind != KindTask:
		r.warnf(m.position("task"), CodeIgnoredKey, m.join("task"), "%s has no effect: it belongs to a step of type %s", m.join("task"), KindTask)
		return nil
	case n == nil && s.Kind == KindTask:
		r.errorf(m.node.pos, CodeRequired, m.join("task"), "%s is required for a step of type %s: it says which task the step is", m.join("task"), KindTask)
		return nil
	case n == nil:
		return nil
	}
	tm := r.mapping(n, m.join("task"))
	if tm == nil {
		return nil
	}
	t := &TaskSettings{Name: tm.name("name", maxTemplateName), Version: tm.name("version", maxVersion), Namespace: tm.text("namespace", "namespace_name")}
	if t.Namespace != "" && (!namespacePattern.MatchString(t.Namespace) || len(t.Namespace) > maxNamespace) {
		r.errorf(tm.position("namespace"), CodeFormat, tm.join("namespace"), "%q is not a namespace: letters, digits and underscores, up to %d", clip(t.Namespace, 64), maxNamespace)
	}
	if v, ok := tm.integer("priority", bounds{MinPriority, MaxPriority, MinPriority, MaxPriority}); ok {
		p := int(v)
		t.Priority = &p
	}
	t.Timeout = r.span(tm, "timeout", false, s)
	t.Context = r.subContext(tm, s)
	tm.done()
	return t
}

func (r *templateReader) subContext(m *mapping, s *StepTemplate) []byte {
	raw, n := m.raw("context")
	if n == nil {
		return nil
	}
	if n.kind != yamlMap && (n.kind != yamlString || !isReference(n.text)) {
		r.errorf(n.pos, CodeType, m.join("context"), "%s has to be a mapping or a reference, not %s", m.join("context"), n.kind)
		return nil
	}
	value := r.plain(n, m.join("context"))
	for i, reference := range references(value, nil) {
		if i == maxReferences {
			r.errorf(n.pos, CodeTooLarge, m.join("context"), "%s has more than %d references", m.join("context"), maxReferences)
			break
		}
		if err := checkReference(reference, s.Dependencies); err != nil {
			r.errorf(n.pos, CodeReference, m.join("context"), "%s: %s", m.join("context"), err)
		}
	}
	return raw
}

// span reads a duration; some may be references.
func (r *templateReader) span(m *mapping, key string, refer bool, s *StepTemplate) string {
	n := m.get(key)
	if n == nil {
		return ""
	}
	path := m.join(key)
	text := r.text(n, path)
	switch {
	case n.kind >= yamlMap:
		return ""
	case n.kind == yamlInt || n.kind == yamlFloat:
		r.errorf(n.pos, CodeFormat, path, "%s is %s without a unit; write %ss or %sm, say", path, clip(text, 32), clip(text, 32), clip(text, 32))
		return ""
	case refer && isReference(text):
		return r.checked(n, path, text, s)
	}
	d, err := ParseSpan(text)
	if err != nil {
		r.errorf(n.pos, CodeFormat, path, "%s: %s", path, err)
		return ""
	}
	if d > usualSpan {
		r.warnf(n.pos, CodeRange, path, "%s is longer than a month", path)
	}
	return text
}

// moment reads a point in time or a reference to one.
func (r *templateReader) moment(m *mapping, key string, s *StepTemplate) string {
	n := m.get(key)
	if n == nil {
		return ""
	}
	path := m.join(key)
	text := r.text(n, path)
	if n.kind >= yamlMap {
		return ""
	}
	if isReference(text) {
		return r.checked(n, path, text, s)
	}
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		r.errorf(n.pos, CodeFormat, path, "%s: %q is not a moment such as 2030-01-31T09:00:00Z", path, clip(text, 64))
		return ""
	}
	return text
}

// referring reads a text that may be a reference.
func (r *templateReader) referring(m *mapping, key string, s *StepTemplate) string {
	n := m.get(key)
	if n == nil {
		return ""
	}
	path := m.join(key)
	text := r.text(n, path)
	switch {
	case n.kind >= yamlMap:
		return ""
	case isReference(text):
		return r.checked(n, path, text, s)
	case strings.TrimSpace(text) == "":
		r.errorf(n.pos, CodeRequired, path, "%s is empty", path)
	}
	if err := CheckEventKey(strings.TrimPrefix(text, "$")); err != nil && text != "" {
		r.errorf(n.pos, CodeFormat, path, "%s: %s", path, err)
	}
	return text
}

func (r *templateReader) checked(n *yamlNode, path, reference string, s *StepTemplate) string {
	if err := checkReference(reference, s.Dependencies); err != nil {
		r.errorf(n.pos, CodeReference, path, "%s: %s", path, err)
	}
	return reference
}

func (r *templateReader) prompt(m *mapping) string {
	text := m.text("prompt")
	if n := utf8.RuneCountInString(text); n > maxPrompt {
		r.errorf(m.position("prompt"), CodeRange, m.join("prompt"), "%s has %d characters; up to %d are allowed", m.join("prompt"), n, maxPrompt)
	}
	return text
}
