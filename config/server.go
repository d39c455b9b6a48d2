package config

import (
	"time"
)

// Web is a daemon's REST server.
type Web struct {
	Enabled        bool          `toml:"enabled"`
	BindAddress    string        `toml:"bind_address"`
	RequestTimeout time.Duration `toml:"request_timeout_ms"`
}

// OrchestrationWeb is the REST server of the orchestrator.
type OrchestrationWeb struct {
	Web
	MaxBodyBytes      int           `toml:"max_body_bytes"`
	BodyBudgetBytes   int64         `toml:"body_budget_bytes"`
	AnswerBudgetBytes int64         `toml:"answer_budget_bytes"`
	MaxWait           time.Duration `toml:"max_wait_seconds"`
}
