package template

import (
	"encoding/json"

	"github.com/tasker-go/tasker/internal/admission"
)

// submission reads the throttle and the debounce of submissions; nil: neither.
func (v value) submission() json.RawMessage {
	rules := rule[admission.Rules](v)
	if rules == nil {
		return nil
	}
	raw, err := json.Marshal(rules)
	if err != nil {
		v.wrong(codeType, "has no JSON form: %s", err)
	}
	return raw
}
