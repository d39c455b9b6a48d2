package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// layer ranks where a value came from; a higher layer overrides a lower one.
type layer int

const (
	layerBase     layer = iota // embedded base files
	layerOverlay               // embedded files of the environment
	layerFile                  // files of the user
	layerEnv                   // environment variables and options
	layerComputed              // worked out from other values
)

// entry is the value of one key on its way through a load.
type entry struct {
	key   *Key
	value any // as TOML decodes it; after check, the key's own Go type
	layer layer
	pos   Position
	// env names the variables the value was taken from or substituted with.
	env []string
	// derivedFrom names the key a computed value follows.
	derivedFrom string
	// verbatim values are not searched for placeholders, and numbers may be
	// written as text: they come from environment variables.
	verbatim bool
	// at places the members of an array of tables.
	at map[string]Position
	// bad values failed their check and take no part in further rules.
	bad bool
}

// problem starts a Problem at the entry's place.
func (e *entry) problem(message string) Problem {
	p := Problem{
		File: e.pos.File, Line: e.pos.Line, Column: e.pos.Column,
		Key: e.key.Path, Rule: e.key.Rule(), Message: message,
	}
	if e.value != nil {
		p.Value = shown(e.key, e.value)
	}
	return p
}

// whole, wholes and names read checked values; a value of another type reads
// as zero.
func (e *entry) whole() int64 {
	n, _ := e.value.(int64)
	return n
}

func (e *entry) wholes() []int64 {
	list, _ := e.value.([]int64)
	return list
}

func (e *entry) names() []string {
	list, _ := e.value.([]string)
	return list
}

// source is one TOML document and its rank.
type source struct {
	name  string
	text  string
	layer layer
}

// merge reads the document and lays its values over those in entries.
func (s source) merge(sch *schema, entries map[string]*entry, f *findings) {
	var tree map[string]any
	if _, err := toml.Decode(s.text, &tree); err != nil {
		f.fail(s.syntaxProblem(err))
		return
	}
	c := collector{source: s, schema: sch, entries: entries, findings: f, at: locate(s.name, s.text)}
	c.table("", tree)
}

func (s source) syntaxProblem(err error) Problem {
	p := Problem{File: s.name, Message: "malformed TOML: " + Redact(err.Error())}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		p.Line, p.Column = parse.Position.Line, parse.Position.Col
		p.Message = "malformed TOML: " + Redact(parse.Message)
		if parse.LastKey != "" {
			p.Message += fmt.Sprintf(" (near %s)", parse.LastKey)
		}
	}
	return p
}

// collector walks one decoded document.
type collector struct {
	source
	schema   *schema
	entries  map[string]*entry
	findings *findings
	at       map[string]Position
}

// anyKey begins the keys of a table that is open: other builds of the format
// know more of them.
const anyKey = "common.cache.memcached."

func (c *collector) table(path string, tree map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		value := tree[name]
		if isDocs(name, value) {
			continue
		}
		full := joinPath(path, name)
		if strings.ContainsAny(name, ".[]") { // cannot be any key of ours
			c.unknown(full)
			continue
		}
		sub, isTable := value.(map[string]any)
		k, isKey := c.schema.byPath[full]
		switch {
		case isKey:
			c.leaf(k, value)
		case c.schema.tables[full] && isTable:
			c.table(full, sub)
		case c.schema.tables[full]:
			c.findings.fail(c.problem(full, fmt.Sprintf("%s is a table, not a %s", full, typeName(value))))
		case strings.HasPrefix(full, anyKey): // which keys a cache that is not there would know is not known either
			c.findings.idle = append(c.findings.idle, c.problem(full, full+" has no effect: planned, for "+forCache))
		default:
			c.unknown(full)
		}
	}
}

// leaf lays one value over what lower layers said.
func (c *collector) leaf(k *Key, value any) {
	pos, ok := c.at[k.Path]
	if !ok {
		pos = Position{File: c.name}
	}
	c.entries[k.Path] = &entry{key: k, value: value, layer: c.layer, pos: pos, at: c.at}
}

// unknown never shows the value: a misspelt key may hold a secret.
func (c *collector) unknown(path string) {
	message := "unknown key " + path
	if near := c.schema.nearest(path); near != "" {
		message += fmt.Sprintf("; did you mean %s?", near)
	}
	p := c.problem(path, message)
	p.Rule = "a known key"
	c.findings.fail(p)
}

func (c *collector) problem(path, message string) Problem {
	pos, ok := c.at[path]
	if !ok {
		pos = Position{File: c.name}
	}
	return Problem{File: pos.File, Line: pos.Line, Column: pos.Column, Key: path, Message: message}
}

// isDocs reports whether a table only documents: such tables may stand
// anywhere and are dropped.
func isDocs(name string, value any) bool {
	if !strings.HasSuffix(name, "_docs") {
		return false
	}
	switch value.(type) {
	case map[string]any, []map[string]any:
		return true
	}
	return false
}
