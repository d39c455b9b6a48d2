package config

import (
	"time"
)

// Web is a daemon's REST server.
type Web struct {
	Enabled          bool   `toml:"enabled"`
	BindAddress      string `toml:"bind_address"`
	RequestTimeoutMS int64  `toml:"request_timeout_ms"`
}

// RequestTimeout returns request_timeout_ms: limit for one request.
func (w Web) RequestTimeout() time.Duration {
	return time.Duration(w.RequestTimeoutMS) * time.Millisecond
}

// OrchestrationWeb is the REST server of the orchestrator.
type OrchestrationWeb struct {
	Web
	MaxBodyBytes      int   `toml:"max_body_bytes"`
	BodyBudgetBytes   int64 `toml:"body_budget_bytes"`
	AnswerBudgetBytes int64 `toml:"answer_budget_bytes"`
	MaxWaitSeconds    int64 `toml:"max_wait_seconds"`
}

// MaxWait returns max_wait_seconds: longest time a request may wait for a task to end; 0 forbids waiting.
func (o OrchestrationWeb) MaxWait() time.Duration {
	return time.Duration(o.MaxWaitSeconds) * time.Second
}
