package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Lookup returns the annotation of a key; "api_keys[0].key" finds that of any
// element.
func Lookup(path string) (Key, bool) {
	k, ok := theSchema().lookup(path)
	if !ok {
		return Key{}, false
	}
	return *k, true
}

// Explain describes a key for people: type, rule, default, what it does, its
// status and how it is overridden. The name of a table lists the keys below it,
// no name lists the tables. An unknown name is an error that suggests the
// nearest one.
func Explain(path string) (string, error) {
	sch := theSchema()
	if path == "" {
		return sch.explainAll(), nil
	}
	if k, ok := sch.lookup(path); ok {
		return k.explain(), nil
	}
	if sch.tables[anyElement(path)] {
		return sch.explainTable(anyElement(path)), nil
	}
	return "", fmt.Errorf("unknown configuration key %s", sch.suggest(path))
}

func (k Key) explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n  %s\n", k.Path, k.Description)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", name+":", value)
		}
	}
	row("type", k.Type)
	row("rule", k.Rule)
	row("default", literal(k.Default))
	row("impact", k.Impact)
	if len(k.Env) > 0 {
		row("env", "$"+strings.Join(k.Env, ", $"))
	}
	row("aliases", k.aliasText())
	if k.Secret {
		row("secret", "masked wherever it is shown")
	}
	if k.Reloadable {
		row("reload", "may change without a restart")
	}
	row("status", k.statusText())
	switch {
	case k.Older && len(k.Sets) > 0:
		row("use", strings.Join(k.Sets, ", "))
	case len(k.Sets) > 0:
		row("sets", strings.Join(k.Sets, ", "))
	}
	return b.String()
}

func (k Key) aliasText() string {
	pairs := make([]string, 0, len(k.Aliases))
	for _, from := range slices.Sorted(maps.Keys(k.Aliases)) {
		pairs = append(pairs, fmt.Sprintf("%s = %s", quote(from), quote(k.Aliases[from])))
	}
	return strings.Join(pairs, ", ")
}

func (s *schema) explainTable(table string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]\n", table)
	for i := range s.keys {
		k := &s.keys[i]
		if strings.HasPrefix(k.Path, table+".") || strings.HasPrefix(k.Path, table+"[]") {
			fmt.Fprintf(&b, "  %s: %s%s\n", k.Path, k.Description, k.mark())
		}
	}
	return b.String()
}

// mark is what a list adds to the description of a key without effect.
func (k Key) mark() string {
	if k.Status == StatusActive {
		return ""
	}
	return " (" + k.Status + ")"
}

// explainAll lists the tables, each with how many of its keys have an effect.
func (s *schema) explainAll() string {
	var b strings.Builder
	for _, t := range byTable(s.keys) {
		active := 0
		for _, k := range t.keys {
			if k.Status == StatusActive {
				active++
			}
		}
		fmt.Fprintf(&b, "[%s]  %d of %d keys active\n", t.name, active, len(t.keys))
	}
	return b.String()
}
