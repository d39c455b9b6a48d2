package rest

import (
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/config"
)

// Configure translates the settings of a server, except its identity and its parts.
func Configure(w config.OrchestrationWeb) Config {
	return Config{Address: w.BindAddress, RequestTimeout: w.RequestTimeout, MaxBodyBytes: int64(w.MaxBodyBytes), MaxWait: w.MaxWait,
		BodyBudget: w.BodyBudgetBytes, AnswerBudget: w.AnswerBudgetBytes}
}

// check rejects a configuration without the fields that have no default here.
func (c Config) check() error {
	err := errors.Join(config.Positive("RequestTimeout", c.RequestTimeout), config.Positive("MaxBodyBytes", c.MaxBodyBytes),
		config.Positive("BodyBudget", c.BodyBudget), config.Positive("AnswerBudget", c.AnswerBudget))
	if err != nil {
		return fmt.Errorf("configure the API: %w", err)
	}
	return nil
}
