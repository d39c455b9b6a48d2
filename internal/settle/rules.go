package settle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/workflow"
)

// rulesVersion is raised when what a success leads to depends on more than it did: a
// worker decides by no rules of another version.
const rulesVersion = 1

// Rules are what orchestrators publish with their heartbeats, so that workers decide
// as they would where steps create others. Where those that live do not agree it is
// for them to decide, whichever comes first.
type Rules struct {
	Version int `json:"version"`
	workflow.Creation
	Decisions Decisions `json:"decisions"`
}

// Decisions says what is told of steps that are created at run time.
type Decisions struct {
	// WarnSteps and WarnDepth are from which number of created steps, and of
	// nested decisions, on an outcome is logged as a warning; 0: never.
	WarnSteps int `json:"warn_steps"`
	WarnDepth int `json:"warn_depth"`
	// Log has every outcome logged.
	Log bool `json:"log"`
	// Uncounted leaves them out of the metrics.
	Uncounted bool `json:"uncounted"`
}

// Publish is the document that workers read.
func Publish(creation workflow.Creation, decisions Decisions) (json.RawMessage, error) {
	document, err := json.Marshal(Rules{rulesVersion, creation, decisions})
	if err != nil {
		return nil, fmt.Errorf("encode the rules for workers: %w", err)
	}
	return document, nil
}

// readRules is the inverse of Publish. It refuses what this version does not know all of.
func readRules(document string) (*Rules, error) {
	var r Rules
	d := json.NewDecoder(bytes.NewReader([]byte(document)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("read the rules of orchestrators: %w", err)
	}
	if r.Version != rulesVersion {
		return nil, fmt.Errorf("the rules of orchestrators have version %d: want %d", r.Version, rulesVersion)
	}
	return &r, nil
}

// agreed keeps the rules that were read last. It is safe for concurrent use.
type agreed struct {
	mu       sync.Mutex
	document string
	rules    *Rules // nil: none to decide by
}

// read is what the document says; nil where this worker cannot decide by it.
func (a *agreed) read(document string, log *zap.Logger) *Rules {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.document == document {
		return a.rules
	}
	a.document, a.rules = document, nil
	if document == "" {
		log.Info("no orchestrator lives, or they have different rules: what creates steps is left to them")
		return nil
	}
	rules, err := readRules(document)
	if err != nil {
		log.Warn("what creates steps is left to orchestrators", zap.Error(err))
		return nil
	}
	a.rules = rules
	return rules
}
