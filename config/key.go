package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Type is the kind of value a key holds, as the TOML file spells it.
type Type string

// The types of configuration values.
const (
	TypeString     Type = "string"
	TypeInt        Type = "integer"
	TypeFloat      Type = "float"
	TypeBool       Type = "boolean"
	TypeStringList Type = "list of strings"
	TypeIntList    Type = "list of integers"
	TypeMode       Type = "deployment mode"
	// TypeTables is an array of tables; its member keys are registered with
	// "[]" after the name of the array.
	TypeTables Type = "array of tables"
)

// Status says what a key does in this version.
type Status string

// The statuses of a key. Keys without effect are accepted, so that existing
// files load; a daemon names those that somebody has set when it starts.
const (
	// StatusActive keys change what a daemon does.
	StatusActive Status = "active"
	// StatusPlanned keys have no effect yet: Key.Reason names the feature that
	// will read them.
	StatusPlanned Status = "planned"
	// StatusIgnored keys have no effect and will have none: Key.Reason says why.
	StatusIgnored Status = "ignored"
)

// Key is the one annotation of one configuration key. Validation, Explain,
// Show, Generate and the reference page are all drawn from it.
type Key struct {
	// Path is the full dotted name, for example "common.database.url".
	Path string
	Type Type
	// Default is the value of the embedded base file: string, int64, float64,
	// bool, []string, []int64, or nil for keys that have none (older
	// spellings, members of an array of tables).
	Default any
	// Min and Max bound numbers, both inclusive, when Bounded is true.
	Min, Max float64
	Bounded  bool
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
	Env    []string
	Status Status
	// Reason names the missing feature of a planned key, and says why an ignored
	// one can have no effect.
	Reason string
	// Sets names the keys through which an active key acts, where no file sets
	// those as well.
	Sets []string
	// Older marks an older spelling. It stands for the keys in Sets, or for
	// nothing.
	Older bool

	rule *textRule
}

// textRule is a named condition on a string, or on each string of a list.
type textRule struct {
	text string
	ok   func(string) bool
	// connection marks connection strings: their secret is only a part.
	connection bool
}

// Rule describes the values that are allowed, in words that finish the
// sentence "must be …". It is empty when the type says it all.
func (k Key) Rule() string {
	switch {
	case k.Type == TypeMode:
		return "one of Hybrid, EventDrivenOnly, PollingOnly, Disabled"
	case len(k.Enum) > 0:
		return "one of " + strings.Join(k.Enum, ", ")
	case k.Bounded && k.Type == TypeIntList:
		return fmt.Sprintf("a non-empty list of integers %s–%s", formatNumber(k.Min), formatNumber(k.Max))
	case k.Bounded:
		return formatNumber(k.Min) + "–" + formatNumber(k.Max)
	case k.rule != nil:
		return k.rule.text
	}
	return ""
}

// StatusText is the status for people: with the feature that a planned key
// waits for, and the reason why another is ignored.
func (k Key) StatusText() string {
	switch k.Status {
	case StatusPlanned:
		return "planned, for " + k.Reason
	case StatusIgnored:
		return "ignored: " + k.Reason
	}
	return string(k.Status)
}

// Root is the first element of the path: common, orchestration or worker.
func (k Key) Root() string {
	root, _, _ := strings.Cut(k.Path, ".")
	return root
}

// Table is the path without its last element.
func (k Key) Table() string {
	return k.Path[:strings.LastIndexByte(k.Path, '.')]
}

// Name is the last element of the path.
func (k Key) Name() string {
	return k.Path[strings.LastIndexByte(k.Path, '.')+1:]
}

// Member reports whether the key belongs to the elements of an array of
// tables rather than to the tree itself.
func (k Key) Member() bool { return strings.Contains(k.Path, "[]") }

// held reports whether a field holds the value of the key.
func (k Key) held() bool { return k.Status == StatusActive && len(k.Sets) == 0 }

// The builders below let the tables of keys read as tables. Each returns a
// Key whose Path is only its name until under puts a prefix before it.

func key(name string, t Type, def any, description, impact string) Key {
	return Key{
		Path: name, Type: t, Default: def,
		Description: description, Impact: impact, Status: StatusActive,
	}
}

func text(name, def, description, impact string) Key {
	return key(name, TypeString, def, description, impact)
}

func boolean(name string, def bool, description, impact string) Key {
	return key(name, TypeBool, def, description, impact)
}

func integer(name string, def, lo, hi int64, description, impact string) Key {
	k := key(name, TypeInt, def, description, impact)
	k.Min, k.Max, k.Bounded = float64(lo), float64(hi), true
	return k
}

func float(name string, def, lo, hi float64, description, impact string) Key {
	k := key(name, TypeFloat, def, description, impact)
	k.Min, k.Max, k.Bounded = lo, hi, true
	return k
}

func texts(name string, def []string, description, impact string) Key {
	return key(name, TypeStringList, def, description, impact)
}

func integers(name string, def []int64, lo, hi int64, description, impact string) Key {
	k := key(name, TypeIntList, def, description, impact)
	k.Min, k.Max, k.Bounded = float64(lo), float64(hi), true
	return k
}

func (k Key) oneOf(values ...string) Key { k.Enum = values; return k }

func (k Key) alias(pairs ...string) Key {
	k.Aliases = make(map[string]string, len(pairs)/2)
	for pair := range slices.Chunk(pairs, 2) {
		k.Aliases[pair[0]] = pair[1]
	}
	return k
}

func (k Key) must(rule *textRule) Key { k.rule = rule; return k }
func (k Key) env(names ...string) Key { k.Env = names; return k }
func (k Key) secret() Key             { k.Secret = true; return k }
func (k Key) reload() Key             { k.Reloadable = true; return k }

// ignored marks a key that can have no effect here, planned one that waits for
// a feature.
func (k Key) ignored(why string) Key {
	k.Status, k.Reason, k.Impact = StatusIgnored, why, ""
	return k
}
func (k Key) planned(feature string) Key { k.Status, k.Reason = StatusPlanned, feature; return k }

// sets names the keys through which this one acts.
func (k Key) sets(paths ...string) Key { k.Sets = paths; return k }

// each applies a mark to several keys.
func each(mark func(Key) Key, keys ...Key) []Key {
	for i := range keys {
		keys[i] = mark(keys[i])
	}
	return keys
}

// waiting marks keys as planned for a feature.
func waiting(feature string, keys ...Key) []Key {
	return each(func(k Key) Key { return k.planned(feature) }, keys...)
}

// unset removes the default: the key is absent unless a file sets it.
func (k Key) unset() Key { k.Default = nil; return k }

// older marks an older spelling of other keys; without one it is only
// tolerated.
func (k Key) older(standsFor ...string) Key {
	k.Older, k.Sets, k.Default = true, standsFor, nil
	if len(standsFor) == 0 {
		return k.ignored("an older spelling that nothing stands for any more")
	}
	return k
}

// under puts prefix before the path of every key.
func under(prefix string, keys ...Key) []Key {
	for i := range keys {
		keys[i].Path = prefix + "." + keys[i].Path
	}
	return keys
}

func formatNumber(f float64) string {
	if f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'f', -1, 64)
}
