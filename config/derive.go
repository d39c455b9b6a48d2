package config

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
)

const maxLeaseSeconds = 86400

const (
	keyLease             = "worker.lease_seconds"
	keyHandlerTimeout    = "worker.mpsc_channels.handler_dispatch.handler_timeout_ms"
	keyWorkerID          = "worker.worker_id"
	keyNamespaces        = "worker.namespaces"
	keyPolledNamespaces  = "worker.event_systems.worker.metadata.fallback_poller.supported_namespaces"
	keyClientAuthType    = "worker.orchestration_client.auth.type"
	sharedWorkerID       = "worker-default-001"
	fallbackPollingName  = ".timing.fallback_polling_interval_seconds"
	relaxedIntervalName  = ".poller.relaxed_interval_ms"
	millisecondsInSecond = 1000
)

// eventSystems are the paths of the event systems.
func eventSystems() []string {
	return []string{
		"orchestration.event_systems.orchestration",
		"orchestration.event_systems.task_readiness",
		"worker.event_systems.worker",
	}
}

// replaceLegacy hands the values of older spellings to the keys that stand
// for them now, unless somebody set those as well.
func replaceLegacy(sch *schema, entries map[string]*entry, f *findings) {
	for i := range sch.keys {
		old := &sch.keys[i]
		e, set := entries[old.Path]
		if old.Status != StatusLegacy || !set {
			continue
		}
		delete(entries, old.Path)
		if len(old.ReplacedBy) == 0 {
			f.warn(e.problem(old.Path + " is an older key without effect here"))
			continue
		}
		f.warn(e.problem(old.Path + " is an older spelling; use " + strings.Join(old.ReplacedBy, " and ")))
		for _, path := range old.ReplacedBy {
			current, ok := entries[path]
			if !ok || current.layer >= layerFile {
				continue
			}
			replaced := *e
			replaced.key, replaced.derivedFrom = current.key, old.Path
			entries[path] = &replaced
		}
	}
}

// derive works out values that follow others when nobody set them.
func derive(v *values, workerID string) {
	for _, system := range eventSystems() {
		fallback, relaxed := v.get(system+fallbackPollingName), v.get(system+relaxedIntervalName)
		if fallback != nil && relaxed != nil && fallback.layer >= layerFile && relaxed.layer < layerFile {
			v.compute(relaxed, fallback.whole()*millisecondsInSecond, fallback)
		}
	}
	lease, timeout := v.get(keyLease), v.get(keyHandlerTimeout)
	if lease != nil && timeout != nil && lease.layer < layerFile && timeout.layer >= layerFile {
		needed := (2*timeout.whole() + millisecondsInSecond - 1) / millisecondsInSecond
		if needed > lease.whole() {
			v.compute(lease, min(needed, maxLeaseSeconds), timeout)
		}
	}
	namespaces, polled := v.get(keyNamespaces), v.get(keyPolledNamespaces)
	if namespaces != nil && polled != nil && namespaces.layer < layerFile && len(polled.names()) > 0 {
		v.compute(namespaces, polled.value, polled)
	}
	deriveCredential(v)
	if id := v.get(keyWorkerID); id != nil && id.value == "" {
		if workerID == "" {
			workerID = newWorkerID()
		}
		v.compute(id, workerID, nil)
	}
}

// deriveCredential names the kind of the one credential that is set.
func deriveCredential(v *values) {
	kind := v.get(keyClientAuthType)
	if kind == nil || kind.value != "" || kind.layer >= layerFile {
		return
	}
	for _, c := range []struct{ name, kind string }{{"token", "bearer"}, {"key", "api_key"}} {
		secret := v.get("worker.orchestration_client.auth." + c.name)
		if secret != nil && secret.value != "" {
			v.compute(kind, c.kind, secret)
			return
		}
	}
}

// newWorkerID makes an identity that tells the host and differs per process.
func newWorkerID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "worker"
	}
	suffix := make([]byte, 4)
	_, _ = rand.Read(suffix) // documented never to fail
	return host[:min(len(host), 100)] + "-" + hex.EncodeToString(suffix)
}
