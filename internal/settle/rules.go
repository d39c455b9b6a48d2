package settle

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/workflow"
)

// rulesVersion is raised when the consequences of a success depend on more than before:
// a worker does not decide by rules of another version.
const rulesVersion = 1

// Rules are what orchestrators publish with their heartbeats, so that workers decide
// as they would where steps create others. Where the live orchestrators publish
// different rules, workers leave these decisions to them.
type Rules struct {
	Version int `json:"version"`
	workflow.Creation
	Decisions Decisions `json:"decisions"`
	// Reach says what content of one namespace may use in others; nil: everything. A worker that
	// does not know it leaves what needs rules to orchestrators.
	Reach *auth.Reach `json:"reach,omitempty"`
}

// Decisions says how the creation of steps at run time is logged and counted.
type Decisions struct {
	// WarnSteps and WarnDepth are the numbers of created steps and of nested
	// decisions from which an outcome is logged as a warning; 0: never.
	WarnSteps int `json:"warn_steps"`
	WarnDepth int `json:"warn_depth"`
	// Log has every outcome logged.
	Log bool `json:"log"`
	// Uncounted leaves them out of the metrics.
	Uncounted bool `json:"uncounted"`
}

// Publish encodes the document that workers read.
func Publish(creation workflow.Creation, decisions Decisions, reach *auth.Reach) (json.RawMessage, error) {
	if reach != nil && !reach.Walled {
		reach = nil // as before there were walls
	}
	document, err := json.Marshal(Rules{rulesVersion, creation, decisions, reach})
	if err != nil {
		return nil, fmt.Errorf("encode the rules for workers: %w", err)
	}
	return document, nil
}

// readRules is the inverse of Publish. It rejects a document with unknown fields.
func readRules(document string) (*Rules, error) {
	var r Rules
	d := json.NewDecoder(strings.NewReader(document))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, fmt.Errorf("read the rules of orchestrators: %w", err)
	}
	if r.Version != rulesVersion {
		return nil, fmt.Errorf("the rules of orchestrators have version %d: want %d", r.Version, rulesVersion)
	}
	return &r, nil
}

// Reaching has the rule about other namespaces that orchestrators agreed on last. It is safe for
// concurrent use, and its zero value knows none, which lets everything through.
type Reaching struct {
	mu       sync.Mutex
	document string
	reach    *auth.Reach
}

// By returns the rule of a document that orchestrators have published. Without one, because none is
// alive or theirs differ, the rule stays as it was.
func (r *Reaching) By(document string) *auth.Reach {
	r.mu.Lock()
	defer r.mu.Unlock()
	if document == "" || document == r.document {
		return r.reach
	}
	var rules struct{ Reach *auth.Reach }
	if json.Unmarshal([]byte(document), &rules) == nil {
		r.document, r.reach = document, rules.Reach
	}
	return r.reach
}

// agreed caches the rules that were read last. It is safe for concurrent use.
type agreed struct {
	mu       sync.Mutex
	document string
	rules    *Rules // nil: none to decide by
}

// read decodes the document; nil where this worker cannot decide by it.
func (a *agreed) read(document string, log *zap.Logger) *Rules {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.document == document {
		return a.rules
	}
	a.document, a.rules = document, nil
	if document == "" {
		log.Info("no orchestrator is alive, or their rules differ: steps that create others are left to them")
		return nil
	}
	rules, err := readRules(document)
	if err != nil {
		log.Warn("steps that create others are left to orchestrators", zap.Error(err))
		return nil
	}
	a.rules = rules
	return rules
}
