package workflow

import (
	"strings"
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

func (r *templateReader) steps(m *mapping) ([]StepTemplate, []stepSource) {
	items := m.list("steps")
	switch {
	case len(items) == 0 && (m.get("steps") == nil || m.get("steps").kind == yamlList):
		r.errorf(m.position("steps"), CodeRequired, "steps", "steps is required: a template needs at least one step")
	case len(items) > MaxSteps:
		r.errorf(items[MaxSteps].node.pos, CodeTooLarge, "steps", "the template has %d steps; up to %d are allowed", len(items), MaxSteps)
		items = items[:MaxSteps]
	}
	steps := make([]StepTemplate, 0, len(items))
	sources := make([]stepSource, 0, len(items))
	for _, item := range items {
		if sm := r.mapping(item.node, item.path); sm != nil {
			step, source := r.step(sm)
			steps = append(steps, step)
			sources = append(sources, source)
		}
	}
	return steps, sources
}

func (r *templateReader) step(m *mapping) (StepTemplate, stepSource) {
	source := stepSource{path: m.path, at: m.node.pos}
	s := StepTemplate{
		Name:             m.name("name", maxStepName),
		Description:      m.text("description"),
		SystemDependency: m.text("system_dependency"),
		Retry:            r.retry(m),
		TimeoutSeconds:   r.timeout(m),
		PublishesEvents:  r.publications(m),
		Tags:             m.texts("tags"),
	}
	s.Composition, _ = m.raw("composition")
	s.Kind, source.kind = r.stepKind(m)
	if !s.Kind.ByEngine() {
		s.Handler = r.handler(m)
	} else {
		m.get("handler")
	}
	s.Join = r.join(m, s.Kind)
	s.Compensation, source.compensation = r.compensation(m)
	s.Dependencies, source.dependencies = r.dependencies(m)
	s.Batch, source.worker = r.batch(m, s.Kind)
	r.engineStep(m, &s)
	r.resultSchema(m, &s)
	if name := m.node.field("name"); name != nil {
		source.at = name.value.pos
	}
	source.placeholder = m.node.at([]string{"handler", "initialization", "worker_template_name"}).pos
	m.note(CodeLegacyKey, "age limits belong to the template, not to a step", "lifecycle")
	m.done()
	return s, source
}

func (r *templateReader) stepKind(m *mapping) (StepKind, position) {
	n := m.get("type", "step_type")
	if n == nil {
		return KindStandard, m.node.pos
	}
	path := m.join("type")
	text := r.text(n, path)
	kind, ok := ParseStepKind(text)
	if !ok && n.kind < yamlMap {
		r.errorf(n.pos, CodeEnum, path, "%s cannot be %q; it can be %s%s",
			path, clip(text, 64), alternatives(stepKindNames[1:]), suggestion(text, stepKindNames[1:]))
	}
	if !ok {
		kind = KindStandard
	}
	return kind, n.pos
}

func (r *templateReader) join(m *mapping, kind StepKind) Join {
	join := Join(m.word("join", CodeEnum, string(JoinAll), string(JoinExisting)))
	if kind == KindDeferredConvergence && join == JoinAll {
		r.warnf(m.position("join"), CodeIgnoredKey, m.join("join"), "%s has no effect: a deferred_convergence waits for the parents that exist", m.join("join"))
		return ""
	}
	return join
}

func (r *templateReader) compensation(m *mapping) (string, position) {
	n := m.get("compensation")
	if n == nil {
		return "", m.position("compensation")
	}
	return r.text(n, m.join("compensation")), n.pos
}

func (r *templateReader) dependencies(m *mapping) ([]string, []position) {
	items := m.textItems("dependencies", "depends_on")
	if len(items) > maxDependencies {
		r.errorf(items[maxDependencies].node.pos, CodeTooLarge, items[maxDependencies].path, "the step has %d dependencies; up to %d are allowed", len(items), maxDependencies)
		items = items[:maxDependencies]
	}
	if len(items) == 0 {
		return nil, nil
	}
	names := make([]string, 0, len(items))
	places := make([]position, 0, len(items))
	seen := make(map[string]bool, len(items))
	for _, item := range items {
		name := item.node.text
		if seen[name] {
			r.warnf(item.node.pos, CodeDuplicateDependency, item.path, "the dependency %q is listed twice", clip(name, 64))
			continue
		}
		seen[name] = true
		names = append(names, name)
		places = append(places, item.node.pos)
	}
	return names, places
}

// handler accepts, besides the mapping, the bare address of the handler.
func (r *templateReader) handler(m *mapping) HandlerReference {
	n := m.get("handler")
	path := m.join("handler")
	if n == nil {
		r.errorf(m.position("handler"), CodeRequired, path, "%s is required", path)
		return HandlerReference{}
	}
	if n.kind == yamlString {
		r.warnf(n.pos, CodeType, path, "%s: read as the callable; write {callable: …}", path)
		r.checkCallable(n, path)
		return HandlerReference{Callable: n.text}
	}
	hm := r.mapping(n, path)
	if hm == nil {
		return HandlerReference{}
	}
	h := HandlerReference{
		Method:         hm.text("method"),
		Resolver:       hm.text("resolver"),
		Initialization: hm.object("initialization"),
	}
	if c := hm.get("callable"); c != nil {
		h.Callable = r.text(c, hm.join("callable"))
		r.checkCallable(c, hm.join("callable"))
	} else {
		r.errorf(hm.position("callable"), CodeEmptyCallable, hm.join("callable"), "%s is required: it says which code runs the step", hm.join("callable"))
	}
	hm.done()
	return h
}

func (r *templateReader) checkCallable(n *yamlNode, path string) {
	switch {
	case n.kind >= yamlMap:
	case strings.TrimSpace(n.text) == "":
		r.errorf(n.pos, CodeEmptyCallable, path, "%s is empty: it says which code runs the step", path)
	case len([]rune(n.text)) > maxCallable:
		r.errorf(n.pos, CodeRange, path, "%s has %d characters; up to %d are allowed", path, len([]rune(n.text)), maxCallable)
	}
}

func (r *templateReader) timeout(m *mapping) int {
	n := m.get("timeout_seconds")
	if n == nil {
		return 0
	}
	path := m.join("timeout_seconds")
	v, ok := r.integer(n, path, bounds{0, maxTimeoutSeconds, 0, usualTimeoutSeconds})
	if ok && v == 0 {
		r.warnf(n.pos, CodeRange, path, "%s is 0: the worker's default applies", path)
	}
	return int(v)
}

func (r *templateReader) resultSchema(m *mapping, s *StepTemplate) {
	var schema *yamlNode
	if s.ResultSchema, schema = m.raw("result_schema"); schema != nil {
		path := m.join("result_schema")
		r.checkSchema(schema, path, SeverityWarning)
		r.checkSchemaIsObject(schema, path)
	} else if r.advice {
		r.report(SeverityInfo, m.node.pos, CodeNoResultSchema, m.join("result_schema"),
			"step "+quoteName(s.Name)+" has no result_schema; with one, what its dependents read can be checked")
	}
}

func (r *templateReader) batch(m *mapping, kind StepKind) (*BatchSettings, position) {
	bm := m.child("batch_config")
	if bm == nil {
		return nil, m.position("batch_config")
	}
	count := func(key string, most int64) int {
		bm.require(key)
		v, _ := bm.integer(key, bounds{1, 1 << 30, 1, most})
		return int(v)
	}
	b := &BatchSettings{
		BatchSize:      count("batch_size", 100_000),
		Parallelism:    count("parallelism", 1_000),
		CursorField:    bm.name("cursor_field", maxStepName),
		WorkerTemplate: bm.name("worker_template", maxStepName),
	}
	bm.require("failure_strategy")
	b.FailureStrategy = bm.word("failure_strategy", CodeEnum, ContinueOnFailure, FailFast, IsolateFailed)
	r.tolerance(bm, b)
	bm.note(CodeLegacyKey, "handlers decide when to checkpoint", "checkpoint_interval")
	bm.done()
	if kind != KindBatchWorker {
		r.warnf(m.position("batch_config"), CodeIgnoredKey, m.join("batch_config"), "%s has no effect: it belongs to a step of type batch_worker", m.join("batch_config"))
	}
	worker := bm.node.pos
	if f := bm.node.field("worker_template"); f != nil {
		worker = f.value.pos
	}
	return b, worker
}

// tolerance reads how many batches may fail.
func (r *templateReader) tolerance(m *mapping, b *BatchSettings) {
	if v, ok := m.integer("max_failed_workers", bounds{0, MaxStepNumber, 0, MaxStepNumber}); ok {
		n := int(v)
		b.MaxFailedWorkers = &n
	}
	if v, ok := m.share("min_success_ratio"); ok {
		b.MinSuccessRatio = &v
	}
	if b.FailureStrategy == FailFast && (b.MaxFailedWorkers != nil || b.MinSuccessRatio != nil) {
		r.warnf(m.position("failure_strategy"), CodeIgnoredKey, m.join("failure_strategy"),
			"with %s the first failure ends the batches: max_failed_workers and min_success_ratio have no effect", FailFast)
	}
}

func quoteName(name string) string { return `"` + clip(name, 64) + `"` }
