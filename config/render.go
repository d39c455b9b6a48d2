package config

import (
	"fmt"
	"strings"
)

// line is how one key is written in a generated file.
type line struct {
	value any
	// note is a last comment, for example where the value comes from.
	note string
	// commentedOut keys are shown without taking effect.
	commentedOut bool
}

// render writes keys as a TOML document, table by table in the order of their
// first key, each key with its description and rule.
func render(keys []Key, header string, of func(*Key) line) []byte {
	var b strings.Builder
	for text := range strings.SplitSeq(header, "\n") {
		b.WriteString("# " + text + "\n")
	}
	for _, table := range byTable(keys) {
		fmt.Fprintf(&b, "\n[%s]\n", table.name)
		for _, k := range table.keys {
			renderKey(&b, k, of(k))
		}
	}
	return []byte(b.String())
}

func renderKey(b *strings.Builder, k *Key, l line) {
	fmt.Fprintf(b, "# %s", k.Description)
	if rule := k.Rule; rule != "" {
		fmt.Fprintf(b, " (%s)", rule)
	}
	if k.Status != StatusActive {
		fmt.Fprintf(b, " No effect: %s.", k.statusText())
	}
	if len(k.Env) > 0 {
		fmt.Fprintf(b, " Overridden by $%s.", strings.Join(k.Env, " or $"))
	}
	if l.note != "" {
		b.WriteString(" " + l.note)
	}
	b.WriteByte('\n')
	if l.commentedOut {
		b.WriteString("# ")
	}
	fmt.Fprintf(b, "%s = %s\n", k.name(), literal(l.value))
}

// tableOfKeys is one table and its keys.
type tableOfKeys struct {
	name string
	keys []*Key
}

// byTable groups the keys that stand in files by their table. Legacy keys and
// members of arrays of tables are left out.
func byTable(keys []Key) []*tableOfKeys {
	var tables []*tableOfKeys
	index := map[string]*tableOfKeys{}
	for i := range keys {
		k := &keys[i]
		if k.Older || k.Member {
			continue
		}
		t, ok := index[k.table()]
		if !ok {
			t = &tableOfKeys{name: k.table()}
			index[k.table()] = t
			tables = append(tables, t)
		}
		t.keys = append(t.keys, k)
	}
	return tables
}

// baseFile is the content of the embedded base file of one role: every key
// of the registry with its default. A test keeps the file equal to it.
func baseFile(role string) []byte {
	var keys []Key
	for _, k := range Keys() {
		if k.Root == role {
			keys = append(keys, k)
		}
	}
	header := "The defaults of [" + role + "]. Written from the table of keys in package config;\n" +
		"change them there, or override them in a file of your own."
	return render(keys, header, func(k *Key) line { return line{value: k.Default} })
}

// Generate writes one merged, commented file for a context and one of our
// environments, ready to be edited and named by TASKER_CONFIG_PATH.
// Placeholders stay as they are, and no variable of this process is used.
func Generate(context Context, environment string) ([]byte, error) {
	v, err := newValues(context)
	if err != nil {
		return nil, err
	}
	overlays := embeddedSources("environments/"+environment, layerOverlay, v.roots)
	if len(overlays) == 0 || !isEnvironmentName(environment) {
		return nil, fmt.Errorf("unknown environment %q (test, development, production)", environment)
	}
	for _, s := range append(embeddedSources("base", layerBase, v.roots), overlays...) {
		s.merge(v)
	}
	if err := v.findings.err(); err != nil {
		return nil, fmt.Errorf("reading the embedded configuration: %w", err)
	}
	var keys []Key
	for _, k := range theSchema().keys {
		if _, ok := v.entries[k.Path]; ok {
			keys = append(keys, k)
		}
	}
	if context == "" {
		context = ContextComplete
	}
	header := fmt.Sprintf("Tasker configuration: context %s, environment %s.\n"+
		"Use it with %s=<this file>. Keys that are commented out follow others, or have no effect.", context, environment, envPath)
	return render(keys, header, func(k *Key) line {
		e := v.entries[k.Path]
		l := line{value: e.value}
		if e.layer == layerOverlay && literal(e.value) != literal(k.Default) {
			l.note = "Default " + literal(k.Default) + "."
		}
		l.commentedOut = k.Status != StatusActive || e.layer == layerBase && followsAnother(k.Path)
		return l
	}), nil
}

// followsAnother reports whether a key follows another one unless it is set.
// Written out it would count as set, so generated files only show it.
func followsAnother(path string) bool {
	return path == keyLease || path == keyNamespaces || strings.HasSuffix(path, relaxedIntervalName)
}
