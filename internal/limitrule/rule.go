package limitrule

import (
	"math"
	"slices"
	"unicode/utf8"
)

// Rule bounds the running steps of a callable, key by key. The key of a step is the text at
// KeyPath in the context of its task, or the text after KeyTag in a tag of the task. The key of a
// step without either text is empty, and so are all keys where neither is set.
type Rule struct {
	KeyPath    []string           `json:"key_path,omitempty" doc:"Where the key stands in the context of the task, member by member" maxItems:"16"`
	KeyTag     string             `json:"key_tag,omitempty" doc:"The key is what follows this in a tag of the task, such as tenant:" maxLength:"64"`
	MaxRunning *int               `json:"max_running,omitempty" doc:"Steps of a key that run at once; no bound when absent"`
	PerSecond  *float64           `json:"per_second,omitempty" doc:"Steps of a key that begin in a second, on average; no bound when absent"`
	Burst      int                `json:"burst,omitempty" doc:"With per_second: steps of a key that begin at once after a pause; 1 when absent"`
	Ordered    bool               `json:"ordered,omitempty" doc:"One step of a key at a time, in the order in which they became claimable"`
	Overtake   bool               `json:"overtake,omitempty" doc:"With ordered: others run while the first one waits for its retry"`
	Weights    map[string]float64 `json:"weights,omitempty" doc:"Shares of keys in what is claimed; 1 for others"`
	Beyond     Beyond             `json:"beyond,omitempty" enum:"wait,cancel_newest,cancel_running,drop" doc:"What happens to steps of a key that has no room: they wait (when absent), their tasks are cancelled, those that run make room, or they complete without having run"`
}

// Beyond is what happens when steps of a key find no room.
type Beyond string

// The values of Beyond.
const (
	Wait          Beyond = "wait"           // they wait; also the empty Beyond
	CancelNewest  Beyond = "cancel_newest"  // their tasks are cancelled
	CancelRunning Beyond = "cancel_running" // the newest run; the tasks of those before them are cancelled
	Drop          Beyond = "drop"           // they complete without having run
)

// Bounds of a rule.
const (
	Max        = 1_000_000 // of MaxRunning, PerSecond and Burst
	maxWeights = 1000
	maxKey     = 512 // bytes
	maxPath    = 16
)

// Check calls problem for everything that is wrong with a rule.
func (r *Rule) Check(problem func(format string, args ...any)) {
	(&Key{r.KeyPath, r.KeyTag}).Check(problem)
	if m := r.MaxRunning; m != nil && (*m < 0 || *m > Max) {
		problem("max_running must be between 0 and %d", Max)
	}
	if p := r.PerSecond; p != nil && !(*p > 0 && *p <= Max) { // not a number is neither
		problem("per_second must be above 0 and at most %d", Max)
	}
	if r.Burst < 0 || r.Burst > Max {
		problem("burst must be between 1 and %d", Max)
	}
	if r.Overtake && !r.Ordered {
		problem("overtake needs ordered")
	}
	if !slices.Contains([]Beyond{"", Wait, CancelNewest, CancelRunning, Drop}, r.Beyond) {
		problem("beyond must be wait, cancel_newest, cancel_running or drop")
	}
	r.checkWeights(problem)
	if !r.bounds() && r.KeyPath == nil && r.KeyTag == "" {
		problem("want max_running, per_second, ordered, or a key by which the callable is shared")
	}
	if r.Beyond != "" && r.Beyond != Wait && !r.bounds() {
		problem("beyond needs max_running, per_second or ordered")
	}
}

func (r *Rule) bounds() bool { return r.MaxRunning != nil || r.PerSecond != nil || r.Ordered }

func (r *Rule) checkWeights(problem func(format string, args ...any)) {
	if len(r.Weights) > maxWeights {
		problem("weights may name at most %d keys", maxWeights)
	}
	for key, weight := range r.Weights {
		if !isText(key, maxKey) || !(weight >= 0.001 && weight <= 1000) || math.IsInf(weight, 0) {
			problem("weights must be between 0.001 and 1000, of keys with at most %d characters", maxKey)
		}
	}
}

// isText says whether s has at most most characters that PostgreSQL can store.
func isText(s string, most int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= most && !slices.Contains([]byte(s), 0)
}
