package config

// OrchestratorConfig is everything the orchestrator daemon reads.
type OrchestratorConfig struct {
	Common        Common
	Orchestration Orchestration
}

// WorkerConfig is everything the worker daemon reads.
type WorkerConfig struct {
	Common Common
	Worker Worker
}

// OrchestratorConfig returns the orchestrator's part; its Orchestration is
// zero unless the context was orchestration or complete.
func (l *Loaded) OrchestratorConfig() OrchestratorConfig {
	return OrchestratorConfig{Common: l.Common, Orchestration: l.Orchestration}
}

// WorkerConfig returns the worker's part; its Worker is zero unless the
// context was worker or complete.
func (l *Loaded) WorkerConfig() WorkerConfig {
	return WorkerConfig{Common: l.Common, Worker: l.Worker}
}

// ListenerDSN is the connection for LISTEN and replication: listener_url, or
// url where that is empty.
func (d Database) ListenerDSN() DSN {
	if d.ListenerURL != "" {
		return d.ListenerURL
	}
	return d.URL
}
