package config

import (
	"fmt"
	"strings"
)

// Setting is one effective value and where it came from. Secrets are masked.
type Setting struct {
	Key string `json:"key"`
	// Value is the effective value as TOML writes it.
	Value string `json:"value"`
	// Origin says where the value came from: "default", "default of
	// production", file:line, "$VARIABLE", or the key it follows.
	Origin string `json:"origin"`
	// Position is the place in the file, zero for defaults and variables.
	Position Position `json:"-"`
	// Default tells that the engine's own default or overlay is in effect.
	Default bool `json:"default"`
	Secret  bool `json:"secret"`
	// Status tells whether the value has an effect.
	Status string `json:"status"`
}

// Show lists the effective settings in the order of the documentation.
func (l *Loaded) Show() []Setting {
	settings := make([]Setting, 0, len(l.entries))
	for _, k := range theSchema().keys {
		if e, ok := l.entries[k.Path]; ok {
			settings = append(settings, e.setting())
		}
	}
	return settings
}

// Setting returns one effective setting; ok is false for an unknown key or
// one outside the loaded context.
func (l *Loaded) Setting(path string) (s Setting, ok bool) {
	e, ok := l.entries[path]
	if !ok {
		return Setting{}, false
	}
	return e.setting(), true
}

func (e *entry) setting() Setting {
	s := Setting{
		Key: e.key.Path, Value: shown(e.key, e.value), Secret: e.key.Secret, Status: e.key.Status,
		Default: e.layer < layerFile && len(e.env) == 0,
		Origin:  e.origin(),
	}
	if e.layer == layerFile {
		s.Position = e.pos
	}
	return s
}

func (e *entry) origin() string {
	via := ""
	if len(e.env) > 0 {
		via = "$" + strings.Join(e.env, ", $")
	}
	switch {
	case e.derivedFrom != "":
		return fmt.Sprintf("follows %s (%s)", e.derivedFrom, e.pos)
	case e.layer == layerComputed:
		return "generated"
	case e.layer == layerEnv && via == "":
		return e.pos.File
	case e.layer == layerEnv:
		return via
	}
	where := "default"
	switch e.layer {
	case layerOverlay:
		environment := strings.TrimPrefix(e.pos.File, "embedded:environments/")
		environment, _, _ = strings.Cut(environment, "/")
		where = "default of " + environment
	case layerFile:
		where = fmt.Sprintf("%s:%d", e.pos.File, e.pos.Line)
	}
	if via != "" {
		where += " with " + via
	}
	return where
}

// Change is a key whose effective value differs between two loads.
type Change struct {
	Key      string
	Old, New string // as Show renders them, secrets masked
	// Reloadable tells that the change needs no restart.
	Reloadable bool
}

// Changes lists what differs in next, for a daemon that reloads. Both must be
// of the same context.
func (l *Loaded) Changes(next *Loaded) []Change {
	var changes []Change
	for i := range theSchema().keys {
		k := &theSchema().keys[i]
		before, after := l.entries[k.Path], next.entries[k.Path]
		if k.Status != StatusActive || before == nil || after == nil || sameValue(before.value, after.value) {
			continue
		}
		changes = append(changes, Change{
			Key: k.Path, Old: shown(k, before.value), New: shown(k, after.value), Reloadable: k.Reloadable,
		})
	}
	return changes
}

func sameValue(a, b any) bool { return fmt.Sprintf("%#v", a) == fmt.Sprintf("%#v", b) }
