package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"

	"github.com/tasker-go/tasker/internal/redact"
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
	p := Problem{Position: e.pos, Key: e.key.Path, Rule: e.key.Rule, Message: message}
	if e.value != nil {
		p.Value = shown(e.key, e.value)
	}
	return p
}

// source is one TOML document and its rank.
type source struct {
	name  string
	text  string
	layer layer
}

// document is a decoded source with the places of its keys. It is shared, so nothing in it is changed.
type document struct {
	tree map[string]any
	at   map[string]Position
	err  error
}

// decoded are the embedded documents, by name: each is decoded once.
var decoded struct {
	sync.Mutex
	documents map[string]document
}

// read decodes the source.
func (s source) read() document {
	if s.layer > layerOverlay {
		return s.decode()
	}
	decoded.Lock()
	defer decoded.Unlock()
	d, known := decoded.documents[s.name]
	if !known {
		d = s.decode()
		if decoded.documents == nil {
			decoded.documents = map[string]document{}
		}
		decoded.documents[s.name] = d
	}
	return d
}

func (s source) decode() (d document) {
	if _, d.err = toml.Decode(s.text, &d.tree); d.err == nil {
		d.at = locate(s.name, s.text)
	}
	return d
}

// merge reads the document and lays its values over those in entries.
func (s source) merge(v *values) {
	d := s.read()
	if d.err != nil {
		v.findings.fail(s.syntaxProblem(d.err))
		return
	}
	c := collector{source: s, values: v, at: d.at}
	c.table("", d.tree)
}

func (s source) syntaxProblem(err error) Problem {
	p := Problem{Position: Position{File: s.name}, Message: "malformed TOML: " + redact.Text(err.Error())}
	var parse toml.ParseError
	if errors.As(err, &parse) {
		p.Line, p.Column = parse.Position.Line, parse.Position.Col
		p.Message = "malformed TOML: " + redact.Text(parse.Message)
		if parse.LastKey != "" {
			p.Message += fmt.Sprintf(" (near %s)", parse.LastKey)
		}
	}
	return p
}

// collector walks one decoded document.
type collector struct {
	source
	values *values
	at     map[string]Position
}

// anyKey begins the keys of a table that is open: other builds of the format
// know more of them.
const anyKey = "common.cache.memcached."

func (c *collector) table(path string, tree map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		value := tree[name]
		if IsDocs(name, value) {
			continue
		}
		full := joinPath(path, name)
		sub, isTable := value.(map[string]any)
		k, isKey := theSchema().byPath[full]
		switch {
		case strings.ContainsAny(name, ".[]"): // cannot be any key of ours
			c.values.findings.fail(theSchema().unknown(full, c.place(full)))
		case isKey && c.values.inContext(k): // over what lower layers said
			c.values.entries[full] = &entry{key: k, value: value, layer: c.layer, pos: c.place(full), at: c.at}
		case isKey:
		case theSchema().tables[full] && isTable:
			c.table(full, sub)
		case theSchema().tables[full]:
			c.values.findings.fail(Problem{Position: c.place(full), Key: full, Message: fmt.Sprintf("%s is a table, not a %s", full, typeName(value))})
		case strings.HasPrefix(full, anyKey): // which keys a cache that is not there would know is not known either
			c.values.findings.idle = append(c.values.findings.idle, Problem{Position: c.place(full), Key: full, Message: full + " has no effect: " + theSchema().byPath[anyKey+"url"].statusText()})
		default:
			c.values.findings.fail(theSchema().unknown(full, c.place(full)))
		}
	}
}

// place is where a key or a table stands.
func (c *collector) place(path string) Position {
	if pos, ok := c.at[path]; ok {
		return pos
	}
	return Position{File: c.name}
}

// IsDocs reports whether a table only documents: such tables may stand
// anywhere and are dropped.
func IsDocs(name string, value any) bool {
	if !strings.HasSuffix(name, "_docs") {
		return false
	}
	switch value.(type) {
	case map[string]any, []map[string]any:
		return true
	}
	return false
}
