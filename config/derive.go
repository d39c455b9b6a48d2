package config

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strings"
)

const (
	keyLease             = "worker.lease_seconds"
	keyWorkerID          = "worker.worker_id"
	keyNamespaces        = "worker.namespaces"
	keyPolledNamespaces  = "worker.event_systems.worker.metadata.fallback_poller.supported_namespaces"
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
		if !old.Older || !set {
			continue
		}
		delete(entries, old.Path)
		if len(old.Sets) == 0 {
			f.idle = append(f.idle, e.withoutEffect())
			continue
		}
		f.warn(e.problem(old.Path + " is an older spelling; use " + strings.Join(old.Sets, " and ")))
		for _, path := range old.Sets {
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
	for _, e := range v.entries {
		if e.bad || e.layer < layerFile || e.key.Older || e.key.Path == keyPolledNamespaces && len(e.names()) == 0 {
			continue
		}
		for _, path := range e.key.Sets {
			if follower := v.get(path); follower != nil && follower.layer < layerFile {
				v.compute(follower, e.handedOn(), e)
			}
		}
	}
	if id := v.get(keyWorkerID); id != nil && id.value == "" {
		if workerID == "" {
			workerID = newWorkerID()
		}
		v.compute(id, workerID, nil)
	}
}

// handedOn is the value that a key hands on to those it sets, in their unit.
func (e *entry) handedOn() any {
	if strings.HasSuffix(e.key.Path, fallbackPollingName) {
		return e.whole() * millisecondsInSecond
	}
	return e.value
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
