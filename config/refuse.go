package config

import (
	"fmt"
	"slices"
)

// Refused returns what a configuration says that can be read and shown, and
// with which no daemon of this version may start; nil when there is nothing. A
// daemon ends with it at once, and a strict validation fails. What is wrong with
// one of the keys except does not count: the caller has something in its place.
func (l *Loaded) Refused(except ...string) error {
	left := slices.DeleteFunc(slices.Clone(l.Refusals), func(p Problem) bool { return slices.Contains(except, p.Key) })
	if len(left) == 0 {
		return nil
	}
	return &ValidationError{Problems: left}
}

// refuse is like fail for what keeps a daemon from starting.
func (v *values) refuse(e *entry, message string) {
	v.findings.refusals = append(v.findings.refusals, e.problem(message))
}

// refuseRules find what is configured and this version cannot honour, and
// a missing database.
func refuseRules(v *values) {
	const database, backend, source, from = "common.database.url", "common.queues.backend", "common.signals.event_source", "common.signals.moving_from"
	if e := v.get(database); e != nil && e.layer < layerFile && len(e.env) == 0 {
		v.findings.refusals = append(v.findings.refusals, Problem{Key: database, Rule: e.key.Rule,
			Message: "no database is configured: set DATABASE_URL, for example to postgresql://tasker@localhost:5432/tasker, or " + database + " in a file"})
	}
	if v.str(backend) == "rabbitmq" && v.get(source) != nil && v.str(source) != "amqp" {
		v.refuse(v.get(source), fmt.Sprintf("%s contradicts %s, which means amqp: leave one of them out", v.said(source), v.said(backend)))
	}
	switch to := v.str(source); {
	case v.str(from) == "" || v.get(source) == nil:
	case v.str(from) == to:
		v.refuse(v.get(from), fmt.Sprintf("%s is %s: want the source that the fleet used before, or none", v.said(from), source))
	case slices.Contains([]string{"wal", "relay"}, v.str(from)) && slices.Contains([]string{"wal", "relay"}, to) && v.str("common.signals.wal.slot") != "":
		v.refuse(v.get(from), fmt.Sprintf("%s and %s would both read common.signals.wal.slot: leave it out while the fleet moves", v.said(from), v.said(source)))
	}
	const bridge, events, namespaces = "orchestration.bridge.rabbitmq_queue.enabled", "orchestration.bridge.rabbitmq_events.enabled", "orchestration.bridge.rabbitmq_events.namespaces"
	for key, needs := range map[string]bool{source: v.str(source) == "amqp", from: v.str(from) == "amqp", bridge: v.is(bridge, true), events: v.is(events, true)} {
		if needs && v.get("common.queues.rabbitmq.url") != nil && v.str("common.queues.rabbitmq.url") == "" {
			v.refuse(v.get(key), v.said(key)+" needs common.queues.rabbitmq.url: set RABBITMQ_URL")
		}
	}
	if e := v.get(namespaces); e != nil && v.is(events, true) {
		if list, _ := e.value.([]string); len(list) == 0 {
			v.refuse(v.get(events), v.said(events)+" needs "+namespaces+": name those whose events are published")
		}
	}
	refuseQueues(v, bridge)
	for _, server := range []string{"orchestration.web.", "orchestration.grpc.", "worker.web.", "worker.grpc."} {
		if v.is(server+"tls_enabled", true) && (v.str(server+"tls_cert_path") == "" || v.str(server+"tls_key_path") == "") {
			v.refuse(v.get(server+"tls_enabled"), server+"tls_enabled = true needs "+server+"tls_cert_path and "+server+"tls_key_path")
		}
	}
}

// refuseQueues finds queues that the bridge should empty and that are none. Where they have the
// names of Tasker, its keys are these names.
func refuseQueues(v *values, bridge string) {
	const known, wanted = "common.queues.rabbitmq.queues", "orchestration.bridge.rabbitmq_queue.keys"
	list, keys := v.get(known), v.get(wanted)
	if !v.is(bridge, true) || list == nil || keys == nil || v.str("common.queues.rabbitmq.naming") == "tasker" {
		return
	}
	queues, _ := list.value.([]string)
	if len(queues) == 0 {
		v.refuse(v.get(bridge), v.said(bridge)+" needs "+known+": name the queues that other programs publish to")
		return
	}
	names, _ := keys.value.([]string)
	for _, key := range names {
		if !slices.Contains(queues, key) {
			v.refuse(keys, fmt.Sprintf("%s has %q: want keys of %s", wanted, key, known))
		}
	}
}
