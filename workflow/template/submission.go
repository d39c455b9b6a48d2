package template

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/limitrule"
)

// submission reads the throttle and the debounce of submissions; nil: neither.
func (m *mapping) submission() json.RawMessage {
	b := m.child("submission")
	if b == nil {
		return nil
	}
	var r admission.Rules
	if t := b.child("throttle"); t != nil {
		r.Throttle = &admission.Throttle{Max: t.number("max"), PeriodMS: int64(t.number("period_ms")), Burst: t.number("burst"), Key: t.limitKey(), Beyond: t.get("beyond").text()}
		t.done()
	}
	if d := b.child("debounce"); d != nil {
		r.Debounce = &admission.Debounce{QuietMS: int64(d.number("quiet_ms")), MaxWaitMS: int64(d.number("max_wait_ms")), Key: d.limitKey(), Keep: d.get("keep").text()}
		d.done()
	}
	b.done()
	if problems := r.Check(); problems != nil {
		b.errorf(codeRange, "submission: %s", strings.Join(problems, "; "))
	}
	raw, err := json.Marshal(r)
	if err != nil {
		b.errorf(codeType, "submission has no JSON form: %s", err)
	}
	return raw
}

// number reads a whole number whose bounds are checked with the other rules.
func (m *mapping) number(key string) int {
	return m.get(key).integer(within(math.MinInt64, math.MaxInt64))
}

func (m *mapping) limitKey() limitrule.Key {
	return limitrule.Key{KeyPath: m.get("key_path").words(), KeyTag: m.get("key_tag").text()}
}
