package workflow

import (
	"bytes"
	"maps"
	"slices"
)

// environments reads the overrides of every environment; it reports an override of an
// unknown step.
func (r *templateReader) environments(m *mapping, steps []StepTemplate) map[string]EnvironmentOverride {
	em := m.child("environments")
	if em == nil || len(em.node.fields) == 0 {
		return nil
	}
	names := map[string]bool{overrideEverything: true}
	for i := range steps {
		names[steps[i].Name] = true
	}
	out := make(map[string]EnvironmentOverride, len(em.node.fields))
	for _, f := range em.node.fields {
		var env EnvironmentOverride
		if vm := em.child(f.key); vm != nil {
			for _, item := range vm.list("steps") {
				if om := r.mapping(item.node, item.path); om != nil {
					env.Steps = append(env.Steps, r.override(om, names))
				}
			}
			vm.done()
		}
		out[f.key] = env
	}
	return out
}

func (r *templateReader) override(m *mapping, names map[string]bool) StepOverride {
	o := StepOverride{
		Name:           m.name("name", maxStepName),
		Initialization: m.object("initialization"),
		TimeoutSeconds: r.timeout(m),
		Retry:          r.retryBlock(m),
	}
	if hm := m.child("handler"); hm != nil {
		if init := hm.object("initialization"); init != nil {
			o.Initialization = merged(o.Initialization, init)
		}
		hm.note(CodeIgnoredKey, "an environment can change only the initialization of a handler", "callable", "method", "resolver")
		hm.done()
	}
	if o.Name != "" && !names[o.Name] {
		r.warnf(m.node.field("name").value.pos, CodeUnknownStep, m.join("name"), "the override has no effect: there is no step %q%s",
			clip(o.Name, 64), suggestion(o.Name, sortedKeys(names)))
	}
	m.done()
	return o
}

// Resolve returns the template as it holds in one environment: its overrides
// are applied in list order and the result has no Environments left. An
// environment the template does not mention, the empty name included, has no
// overrides. The receiver is not changed and shares nothing with the result.
//
// Initialization is merged key by key on the first level; a timeout and a
// whole retry block replace those of the step. The name "ALL" addresses every
// step.
func (t *Template) Resolve(environment string) *Template {
	out := t.clone()
	out.Environments = nil
	overrides := t.Environments[environment].Steps
	if len(overrides) == 0 {
		return out
	}
	index := make(map[string]int, len(out.Steps))
	for i := range out.Steps {
		index[out.Steps[i].Name] = i
	}
	for i := range overrides {
		o := &overrides[i]
		if o.Name == overrideEverything {
			for s := range out.Steps {
				out.Steps[s].override(o)
			}
		} else if s, ok := index[o.Name]; ok {
			out.Steps[s].override(o)
		}
	}
	return out
}

func (s *StepTemplate) override(o *StepOverride) {
	if len(o.Initialization) > 0 {
		s.Handler.Initialization = merged(s.Handler.Initialization, copyMap(o.Initialization))
	}
	if o.TimeoutSeconds > 0 {
		s.TimeoutSeconds = o.TimeoutSeconds
	}
	if o.Retry != nil {
		s.Retry = o.Retry.clone()
	}
}

// merged adds the entries of over to base, which it may change.
func merged(base, over map[string]any) map[string]any {
	if base == nil {
		return over
	}
	maps.Copy(base, over)
	return base
}

// clone is a deep copy.
func (t *Template) clone() *Template {
	out := *t
	out.Metadata = copyMap(t.Metadata)
	out.InputSchema = bytes.Clone(t.InputSchema)
	out.DomainEvents = slices.Clone(t.DomainEvents)
	for i := range out.DomainEvents {
		out.DomainEvents[i].Schema = bytes.Clone(out.DomainEvents[i].Schema)
	}
	if t.SystemDependencies != nil {
		d := *t.SystemDependencies
		d.Secondary = slices.Clone(d.Secondary)
		out.SystemDependencies = &d
	}
	if t.Lifecycle != nil {
		l := *t.Lifecycle
		out.Lifecycle = &l
	}
	if t.Identity != nil {
		i := *t.Identity
		out.Identity = &i
	}
	if t.Priority != nil {
		p := *t.Priority
		out.Priority = &p
	}
	out.Steps = slices.Clone(t.Steps)
	for i := range out.Steps {
		out.Steps[i] = out.Steps[i].clone()
	}
	out.Environments = maps.Clone(t.Environments)
	for name, env := range out.Environments {
		out.Environments[name] = env.clone()
	}
	return &out
}

func (s *StepTemplate) clone() StepTemplate {
	out := *s
	out.Handler.Initialization = copyMap(s.Handler.Initialization)
	out.Dependencies = slices.Clone(s.Dependencies)
	out.Retry = s.Retry.clone()
	out.PublishesEvents = slices.Clone(s.PublishesEvents)
	for i := range out.PublishesEvents {
		out.PublishesEvents[i].Schema = bytes.Clone(out.PublishesEvents[i].Schema)
	}
	if s.Batch != nil {
		b := *s.Batch
		out.Batch = &b
	}
	out.ResultSchema = bytes.Clone(s.ResultSchema)
	out.Composition = bytes.Clone(s.Composition)
	out.Tags = slices.Clone(s.Tags)
	return out
}

func (p *RetryPolicy) clone() RetryPolicy {
	out := *p
	out.DelaysMS = slices.Clone(p.DelaysMS)
	return out
}

func (e EnvironmentOverride) clone() EnvironmentOverride {
	out := EnvironmentOverride{Steps: slices.Clone(e.Steps)}
	for i := range out.Steps {
		o := &out.Steps[i]
		o.Initialization = copyMap(o.Initialization)
		if o.Retry != nil {
			retry := o.Retry.clone()
			o.Retry = &retry
		}
	}
	return out
}
