package rest

import (
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/settings"
)

// Configure translates the settings of a server, except its identity and its parts.
func Configure(w config.OrchestrationWeb) Config {
	return Config{Address: w.BindAddress, RequestTimeout: w.RequestTimeout, MaxBodyBytes: int64(w.MaxBodyBytes), MaxWait: w.MaxWait,
		BodyBudget: w.BodyBudgetBytes, AnswerBudget: w.AnswerBudgetBytes,
		BrowserSessions: BrowserSessions{Life: w.Browser.SessionLife, Idle: w.Browser.SessionIdle, Most: w.Browser.MaxSessions}}
}

// check rejects a configuration without the fields that have no default here.
func (c Config) check() error {
	err := errors.Join(settings.Positive("RequestTimeout", c.RequestTimeout), settings.Positive("MaxBodyBytes", c.MaxBodyBytes),
		settings.Positive("BodyBudget", c.BodyBudget), settings.Positive("AnswerBudget", c.AnswerBudget),
		settings.Positive("BrowserSessions.Life", c.BrowserSessions.Life), settings.Positive("BrowserSessions.Idle", c.BrowserSessions.Idle),
		settings.Positive("BrowserSessions.Most", c.BrowserSessions.Most))
	if err != nil {
		return fmt.Errorf("configure the API: %w", err)
	}
	return nil
}
