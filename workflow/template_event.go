package workflow

import "regexp"

// The values of EventPublication that a file may leave out.
const (
	defaultCondition    = "success"
	defaultDeliveryMode = "durable"
)

var eventNamePattern = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)+$`)

func (r *templateReader) domainEvents(m *mapping) []DomainEventDeclaration {
	var events []DomainEventDeclaration
	for _, item := range m.list("domain_events") {
		if item.node.kind == yamlString {
			events = append(events, DomainEventDeclaration{Name: item.node.text})
			continue
		}
		em := r.mapping(item.node, item.path)
		if em == nil {
			continue
		}
		e := DomainEventDeclaration{Name: em.name("name", maxEventName), Description: em.text("description")}
		e.Schema = r.eventSchema(em)
		em.done()
		events = append(events, e)
	}
	return events
}

func (r *templateReader) publications(m *mapping) []EventPublication {
	var events []EventPublication
	for _, item := range m.list("publishes_events") {
		if item.node.kind == yamlString {
			r.checkEventName(item.node, item.path)
			events = append(events, EventPublication{Name: item.node.text, Condition: defaultCondition, DeliveryMode: defaultDeliveryMode})
			continue
		}
		if em := r.mapping(item.node, item.path); em != nil {
			events = append(events, r.publication(em))
		}
	}
	return events
}

func (r *templateReader) publication(m *mapping) EventPublication {
	e := EventPublication{
		Name:         m.name("name", maxEventName),
		Description:  m.text("description"),
		Condition:    m.word("condition", CodeEnum, "success", "failure", "retryable_failure", "permanent_failure", "always"),
		DeliveryMode: m.word("delivery_mode", CodeUnknownDelivery, "durable", "fast", "broadcast"),
		Publisher:    m.text("publisher"),
		Key:          m.text("key"),
	}
	if e.Key != "" && e.DeliveryMode == "fast" {
		r.warnf(m.position("key"), CodeIgnoredKey, m.join("key"), "%s has no effect: fast events are not kept for steps that wait", m.join("key"))
	}
	if err := CheckEventKey(e.Key); err != nil {
		r.errorf(m.position("key"), CodeFormat, m.join("key"), "%s: %s", m.join("key"), err)
	}
	if e.Condition == "" {
		e.Condition = defaultCondition
	}
	if e.DeliveryMode == "" {
		e.DeliveryMode = defaultDeliveryMode
	}
	if e.Name != "" {
		r.checkEventName(m.node.field("name").value, m.join("name"))
	}
	e.Schema = r.eventSchema(m)
	if e.Schema == nil {
		r.warnf(m.node.pos, CodeRequired, m.join("schema"), "%s is missing: the payload of the event is not checked", m.join("schema"))
	}
	m.done()
	return e
}

func (r *templateReader) checkEventName(n *yamlNode, path string) {
	if n.kind < yamlMap && !eventNamePattern.MatchString(n.text) {
		r.warnf(n.pos, CodeFormat, path, "the event name %q is not in lower case with at least one dot, like order.created", clip(n.text, 64))
	}
}

func (r *templateReader) eventSchema(m *mapping) []byte {
	data, n := m.raw("schema")
	if n != nil {
		r.checkSchema(n, m.join("schema"), SeverityWarning)
	}
	return data
}
