package schema

import (
	"math"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema that refers to itself is checked once for each value, unless two of its references
// lead from one value to the same part of it: then each level of the value doubles the work. Read
// as an automaton whose states are schemas and whose letters are the names and positions of parts,
// the schema is ambiguous to an exponential degree: there is a state with two different ways back
// to itself that read the same word.

// arrow leads from a schema to one for a part of the value.
type arrow struct {
	part   part
	to     *jsonschema.Schema
	choice []branch // that lead to it
}

// branch is one of two subschemas of which only one applies to a value.
type branch struct {
	of  *jsonschema.Schema
	met bool // then; else otherwise
}

// part names parts of an object or list.
type part struct {
	name      string             // a property
	pattern   jsonschema.Regexp  // properties with such names
	rest      *jsonschema.Schema // properties that this schema does not name
	from, end int                // positions of a list, without end; 0, 0: of an object
}

// overlaps reports whether a part may be one of both. Patterns are taken to be disjoint if they
// differ: a meter bounds what this overlooks.
func (p *part) overlaps(o *part) bool {
	switch {
	case p.end > 0 || o.end > 0:
		return p.from < o.end && o.from < p.end
	case o.pattern == nil && o.rest == nil && (p.pattern != nil || p.rest != nil):
		return o.overlaps(p)
	case o.pattern != nil && p.rest != nil:
		return o.overlaps(p)
	case p.pattern == nil && p.rest == nil: // a name
		switch {
		case o.pattern != nil:
			return o.pattern.MatchString(p.name)
		case o.rest != nil:
			return !names(o.rest, p.name)
		}
		return p.name == o.name
	case p.pattern != nil && o.rest != nil:
		for pattern := range o.rest.PatternProperties {
			if pattern.String() == p.pattern.String() {
				return false
			}
		}
		return true
	case p.pattern != nil:
		return p.pattern.String() == o.pattern.String()
	}
	return true // two rests
}

// names reports whether a schema names a property.
func names(s *jsonschema.Schema, property string) bool {
	if _, named := s.Properties[property]; named {
		return true
	}
	for pattern := range s.PatternProperties {
		if pattern.MatchString(property) {
			return true
		}
	}
	return false
}

// together reports whether two arrows can lead from one value.
func together(a, b *arrow) bool {
	for _, x := range a.choice {
		for _, y := range b.choice {
			if x.of == y.of && x.met != y.met {
				return false
			}
		}
	}
	return true
}

// maxArrows bounds the analysis; what is beyond it is left to meters.
const maxArrows = 20_000

// doubling returns a schema that each level of a value doubles the work of; nil: there is none.
func doubling(reachable []*jsonschema.Schema) *jsonschema.Schema {
	d := ambiguity{arrows: map[*jsonschema.Schema][]arrow{}, left: maxArrows}
	for _, s := range reachable {
		if d.collect(s); d.left < 0 {
			return nil
		}
	}
	d.left = 50 * maxArrows
	for _, s := range reachable {
		if d.doubles(s) {
			return s
		}
	}
	return nil
}

// ambiguity looks for two ways of one word.
type ambiguity struct {
	arrows map[*jsonschema.Schema][]arrow
	left   int // steps of the analysis
}

// collect finds the arrows of a schema: its own, and those of the schemas that apply to the same
// value.
func (d *ambiguity) collect(s *jsonschema.Schema) {
	var list []arrow
	var walk func(at *jsonschema.Schema, choice []branch)
	walk = func(at *jsonschema.Schema, choice []branch) {
		own := arrowsOf(at)
		if d.left -= 1 + len(own); d.left < 0 {
			return
		}
		for _, a := range own {
			a.choice = choice
			list = append(list, a)
		}
		for _, next := range sameValue(at) {
			switch {
			case next == nil || d.left < 0:
			case next == at.Then || next == at.Else:
				walk(next, append(choice[:len(choice):len(choice)], branch{at, next == at.Then}))
			default:
				walk(next, choice)
			}
		}
	}
	walk(s, nil)
	d.arrows[s] = list
}

// arrowsOf are the arrows of a schema itself.
func arrowsOf(s *jsonschema.Schema) (list []arrow) {
	add := func(p part, to any) {
		if next, ok := to.(*jsonschema.Schema); ok && next != nil {
			list = append(list, arrow{part: p, to: next})
		}
	}
	for name, property := range s.Properties {
		add(part{name: name}, property)
	}
	for pattern, property := range s.PatternProperties {
		add(part{pattern: pattern}, property)
	}
	add(part{rest: s}, s.AdditionalProperties)
	add(part{rest: s}, s.UnevaluatedProperties)
	first := s.PrefixItems
	if older, ok := s.Items.([]*jsonschema.Schema); ok {
		first = older
	}
	for i, item := range first {
		add(part{from: i, end: i + 1}, item)
	}
	behind := part{from: len(first), end: math.MaxInt}
	add(behind, s.Items2020)
	add(behind, s.Items)
	add(behind, s.AdditionalItems)
	add(behind, s.UnevaluatedItems)
	add(part{end: math.MaxInt}, s.Contains)
	return list
}

// pair are two schemas that apply to the same value.
type pair [2]*jsonschema.Schema

// doubles reports whether two ways lead from s back to it that read the same word.
func (d *ambiguity) doubles(s *jsonschema.Schema) bool {
	var queue []pair
	seen := map[pair]bool{}
	visit := func(a, b *arrow) {
		next := pair{a.to, b.to}
		if !seen[next] && a.part.overlaps(&b.part) && together(a, b) {
			seen[next] = true
			queue = append(queue, next)
		}
	}
	own := d.arrows[s]
	for i := range own {
		for j := range own[:i] {
			d.left--
			visit(&own[i], &own[j])
		}
	}
	for ; len(queue) > 0 && d.left > 0; queue = queue[1:] {
		at := queue[0]
		if at == (pair{s, s}) {
			return true
		}
		for i := range d.arrows[at[0]] {
			for j := range d.arrows[at[1]] {
				d.left--
				visit(&d.arrows[at[0]][i], &d.arrows[at[1]][j])
			}
		}
	}
	return false
}

// doublingFault is that of a schema for new templates.
func doublingFault(reachable []*jsonschema.Schema) []Fault {
	s := doubling(reachable)
	if s == nil {
		return nil
	}
	where := fragment(s.Location)
	what := "its alternatives refer back to it"
	if len(where) > 0 && strings.HasPrefix(where[0], "$") {
		what = "the alternatives of " + Pointer(where) + " refer back to it"
	}
	return []Fault{{Pointer: where, Message: what + " for the same part of a value, so that each level doubles the work", Fatal: true}}
}
