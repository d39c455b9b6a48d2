package workflow

import (
	"fmt"
	"strconv"
)

var stepKindNames = [...]string{
	KindStandard:            "standard",
	KindDecision:            "decision",
	KindDeferredConvergence: "deferred_convergence",
	KindBatchable:           "batchable",
	KindBatchWorker:         "batch_worker",
	KindCompensation:        "compensation",
	KindSleep:               "sleep",
	KindWaitForEvent:        "wait_for_event",
	KindApproval:            "approval",
	KindTask:                "task",
}

// String is the name used in templates and on the wire.
func (k StepKind) String() string {
	if k == 0 || int(k) >= len(stepKindNames) {
		return "StepKind(" + strconv.Itoa(int(k)) + ")"
	}
	return stepKindNames[k]
}

// ParseStepKind reads the name of a step kind, the aliases "decision_point"
// and "deferred" included.
func ParseStepKind(name string) (StepKind, bool) {
	switch name {
	case "decision_point":
		return KindDecision, true
	case "deferred":
		return KindDeferredConvergence, true
	}
	for k := KindStandard; int(k) < len(stepKindNames); k++ {
		if stepKindNames[k] == name {
			return k, true
		}
	}
	return 0, false
}

// MarshalText writes the name; a value that is not a kind is an error.
func (k StepKind) MarshalText() ([]byte, error) {
	if k == 0 || int(k) >= len(stepKindNames) {
		return nil, fmt.Errorf("%d is not a step kind", k)
	}
	return []byte(stepKindNames[k]), nil
}

// UnmarshalText reads what ParseStepKind reads.
func (k *StepKind) UnmarshalText(text []byte) error {
	kind, ok := ParseStepKind(string(text))
	if !ok {
		return fmt.Errorf("%q is not a step kind", text)
	}
	*k = kind
	return nil
}
