package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tasker-go/tasker/internal/limitrule"
)

// Bounds of rules.
const (
	maxTasks  = 1_000_000
	maxPeriod = 31 * 24 * time.Hour
)

// Rules are those of one template; at least one of them is set. They are kept as JSON, which
// the function admit reads.
type Rules struct {
	Throttle *Throttle `json:"throttle,omitempty" doc:"How many tasks may be created in a time"`
	Debounce *Debounce `json:"debounce,omitempty" doc:"Makes one task of submissions that follow one another quickly"`
}

// Throttle says how many tasks of a key may be created in a period.
type Throttle struct {
	Max      int   `json:"max" doc:"Tasks in a period, 1 to 1000000; a place comes free every period/max"`
	PeriodMS int64 `json:"period_ms" doc:"1 to 2678400000 (31 days)"`
	Burst    int   `json:"burst,omitempty" doc:"How many may come at once after a quiet time, 1 to max; absent: max"`
	limitrule.Key
	Beyond string `json:"beyond,omitempty" enum:"refuse,delay" doc:"What happens to a task beyond it; absent: refuse"`
}

// Debounce says of which submissions of a key one task is made.
type Debounce struct {
	QuietMS   int64 `json:"quiet_ms" doc:"The task starts when so long none has followed; 1 to 2678400000 (31 days)"`
	MaxWaitMS int64 `json:"max_wait_ms,omitempty" doc:"It starts at the latest so long after the first, quiet_ms to 2678400000; absent: no bound"`
	limitrule.Key
	Keep string `json:"keep,omitempty" enum:"latest,first" doc:"Whose context the task has; absent: latest"`
}

// Parse reads the rules of a template; nil when it has none.
func Parse(raw json.RawMessage) (*Rules, error) {
	if raw == nil {
		return nil, nil //nolint:nilnil // no rules are no error
	}
	r := &Rules{}
	err := json.Unmarshal(raw, r)
	if err == nil {
		r.Check(func(format string, args ...any) { err = errors.Join(err, fmt.Errorf(format, args...)) })
	}
	if err != nil {
		return nil, fmt.Errorf("read the block submission: %w", err)
	}
	return r, nil
}

// Check calls problem for everything that is wrong with the rules.
func (r *Rules) Check(problem func(format string, args ...any)) {
	bounded := func(name string, value, least, most int64) {
		if value < least || value > most {
			problem("%s must be between %d and %d", name, least, most)
		}
	}
	among := func(name, value string, words ...string) {
		if value != "" && !slices.Contains(words, value) {
			problem("invalid %s %.40q: want %s or %s", name, value, words[0], words[1])
		}
	}
	key := func(rule string, k *limitrule.Key) {
		k.Check(func(format string, args ...any) { problem(rule+": "+format, args...) })
	}
	if r.Throttle == nil && r.Debounce == nil {
		problem("give a throttle or a debounce")
	}
	if t := r.Throttle; t != nil {
		bounded("throttle.max", int64(t.Max), 1, maxTasks)
		bounded("throttle.period_ms", t.PeriodMS, 1, maxPeriod.Milliseconds())
		bounded("throttle.burst", int64(t.Burst), 0, int64(max(t.Max, 1)))
		key("throttle", &t.Key)
		among("throttle.beyond", t.Beyond, "refuse", "delay")
	}
	if d := r.Debounce; d != nil {
		bounded("debounce.quiet_ms", d.QuietMS, 1, maxPeriod.Milliseconds())
		if d.MaxWaitMS != 0 {
			bounded("debounce.max_wait_ms", d.MaxWaitMS, d.QuietMS, maxPeriod.Milliseconds())
		}
		key("debounce", &d.Key)
		among("debounce.keep", d.Keep, "latest", "first")
	}
}
