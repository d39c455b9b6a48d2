package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The types of configuration values.
const (
	typeString     = "string"
	typeInt        = "integer"
	typeFloat      = "float"
	typeBool       = "boolean"
	typeStringList = "list of strings"
	typeIntList    = "list of integers"
	typeMode       = "deployment mode"
	// typeTables is an array of tables; its member keys are registered with
	// "[]" after the name of the array.
	typeTables = "array of tables"
)

// The statuses of a key. Keys without effect are accepted, so that existing
// files load; a daemon names those that are set when it starts.
const (
	// StatusActive keys change what a daemon does.
	StatusActive = "active"
	// statusPlanned keys have no effect yet: Key.Reason names the feature that
	// will read them.
	statusPlanned = "planned"
	// statusIgnored keys have no effect and will have none: Key.Reason says why.
	statusIgnored = "ignored"
)

// Key is one configuration key, as the field that holds it is annotated.
// Validation, Explain, Show, Generate and the reference page are all drawn from it.
type Key struct {
	// Path is the full dotted name, for example "common.database.url"; Root is its first
	// element: common, orchestration or worker.
	Path, Root string
	// Member says that the key belongs to the elements of an array of tables rather than
	// to the tree itself.
	Member bool
	// Type is the kind of its values, in words: string, integer, list of strings, ….
	Type string
	// Default is the value of the embedded base file: string, int64, float64,
	// bool, []string, []int64, or nil for keys that have none (older
	// spellings, members of an array of tables).
	Default any
	// Min and Max bound numbers, both inclusive, when Bounded is true.
	Min, Max float64
	Bounded  bool
	// Rule describes the values that are allowed, in words that finish the sentence
	// "must be …". It is empty when the type says it all.
	Rule string
	// Enum lists the allowed values, empty when any is allowed.
	Enum []string
	// Aliases maps other accepted spellings to a member of Enum.
	Aliases map[string]string
	// Description says what the key is; Impact says what changing it does.
	Description string
	Impact      string
	// Secret values are masked wherever they would be shown.
	Secret bool
	// Reloadable keys may be changed without a restart of the daemon.
	Reloadable bool
	// Env names the environment variables that override the key, strongest
	// first.
	Env []string
	// Status is active, planned or ignored.
	Status string
	// Reason names the missing feature of a planned key, and says why an ignored
	// one can have no effect.
	Reason string
	// Sets names the keys through which an active key acts, where no file sets
	// those as well.
	Sets []string
	// Older marks an older spelling. It stands for the keys in Sets, or for
	// nothing.
	Older bool

	rule       *textRule
	connection bool          // a connection string: its secret is only a part
	unit       time.Duration // of its number
	index      []int         // of its field in a Loaded; nil where none holds it
}

// inWords is the Rule of a key.
func (k Key) inWords() string {
	switch {
	case k.Type == typeMode:
		return "one of Hybrid, EventDrivenOnly, PollingOnly, Disabled"
	case len(k.Enum) > 0:
		return "one of " + strings.Join(k.Enum, ", ")
	case k.Bounded && k.Type == typeIntList:
		return fmt.Sprintf("a non-empty list of integers %s–%s", formatNumber(k.Min), formatNumber(k.Max))
	case k.Bounded:
		return formatNumber(k.Min) + "–" + formatNumber(k.Max)
	case k.rule != nil:
		return k.rule.text
	}
	return ""
}

// statusText is the status for people: with the feature that a planned key
// waits for, and the reason why another is ignored.
func (k Key) statusText() string {
	switch k.Status {
	case statusPlanned:
		return "planned, for " + k.Reason
	case statusIgnored:
		return "ignored: " + k.Reason
	}
	return k.Status
}

// table is the path without its last element.
func (k Key) table() string {
	return k.Path[:strings.LastIndexByte(k.Path, '.')]
}

// name is the last element of the path.
func (k Key) name() string {
	return k.Path[strings.LastIndexByte(k.Path, '.')+1:]
}

// outdate marks the older spelling of the keys in Sets; without any it is only
// tolerated.
func (k *Key) outdate() {
	k.Older, k.Description = true, "Older spelling."
	if len(k.Sets) == 0 {
		k.Status, k.Reason = statusIgnored, "an older spelling that nothing stands for any more"
	} else if k.Impact == "" {
		k.Impact = "Used for the keys that replace it."
	}
}

func formatNumber(f float64) string {
	if f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
