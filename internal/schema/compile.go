package schema

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/tasker-go/tasker/internal/wording"
)

// schemaURL names the schema inside the compiler; it is never fetched.
const schemaURL = "tasker:///schema.json"

// instance is a compiled schema that one check at a time uses.
type instance struct {
	whole    *jsonschema.Schema // fails with the tree of all failures
	negation *jsonschema.Schema // only finds out whether there are any
	meter    *meter
}

// compileAny tries the newest draft first. Files without $schema are
// sometimes written for an older one (a list under items, exclusiveMinimum:
// true); the fault reported is the one of the newest.
func compileAny(value any) (*Schema, []Fault) {
	s := &Schema{document: value, draft: jsonschema.Draft2020}
	faults := s.prepare()
	if faults == nil {
		return s, nil
	}
	for _, s.draft = range []*jsonschema.Draft{jsonschema.Draft7, jsonschema.Draft4} {
		if older := s.prepare(); older == nil {
			return s, nil
		}
	}
	return nil, faults
}

// prepare compiles the schema for the first time.
func (s *Schema) prepare() []Fault {
	first, faults := compileDraft(s.document, s.draft)
	if faults != nil {
		return faults
	}
	s.compiled = first.whole
	s.idle.Put(first)
	return nil
}

// compileDraft returns either an instance of the schema or at least one fault.
func compileDraft(value any, draft *jsonschema.Draft) (made *instance, faults []Fault) {
	defer func() {
		if p := recover(); p != nil {
			made, faults = nil, []Fault{{Message: "it cannot be compiled: " + wording.Line(fmt.Sprint(p))}}
		}
	}()
	c := jsonschema.NewCompiler()
	c.DefaultDraft(draft)
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(compilePattern)
	for _, name := range knownFormats {
		c.RegisterFormat(&jsonschema.Format{Name: name, Validate: func(any) error { return nil }})
	}
	if err := c.AddResource(schemaURL, value); err != nil {
		return nil, []Fault{{Message: wording.Line(err.Error())}}
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, faultsOf(err, value)
	}
	reachable := reachableFrom(append([]*jsonschema.Schema{schema}, dynamicAnchors(c, value, "")...))
	if faults := checkCost(reachable); faults != nil {
		return nil, faults
	}
	made = &instance{schema, negationOf(schema), &meter{}}
	metered(made.meter, reachable)
	return made, nil
}

// blank is a compiled schema without keywords that apply.
var blank = sync.OnceValues(func() (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	if err := c.AddResource(schemaURL, map[string]any{"$comment": "blank"}); err != nil {
		return nil, err
	}
	return c.Compile(schemaURL)
})

// negationOf accepts what a schema rejects. Within a negation the library stops at the first
// failure, and describes none.
func negationOf(s *jsonschema.Schema) *jsonschema.Schema {
	of, err := blank()
	if err != nil {
		panic(err) //nolint:forbidigo // the schema is a constant
	}
	negation := *of
	negation.Not = s
	return &negation
}

// dynamicAnchors are the schemas that dynamic references find by name, although nothing may refer
// to them.
func dynamicAnchors(c *jsonschema.Compiler, v any, at string) (found []*jsonschema.Schema) {
	switch v := v.(type) {
	case map[string]any:
		if _, named := v["$dynamicAnchor"].(string); named {
			if s, err := c.Compile(schemaURL + "#" + at); err == nil {
				found = append(found, s)
			}
		}
		for _, key := range sorted(v) {
			found = append(found, dynamicAnchors(c, v[key], at+"/"+url.PathEscape(strings.TrimPrefix(Pointer([]string{key}), "/")))...)
		}
	case []any:
		for i, item := range v {
			found = append(found, dynamicAnchors(c, item, at+"/"+strconv.Itoa(i))...)
		}
	}
	return found
}

// knownFormats are the formats that drafts before 2019-09 would enforce by themselves; here
// no draft does.
var knownFormats = [...]string{
	"json-pointer", "relative-json-pointer", "uuid", "duration", "period", "ipv4", "ipv6", "hostname", "email",
	"date", "time", "date-time", "uri", "iri", "uri-reference", "iri-reference", "uri-template", "semver",
}

// noLoader rejects every reference that leaves the schema.
type noLoader struct{}

var errRemoteReference = errors.New("a schema may refer only to itself")

func (noLoader) Load(string) (any, error) { return nil, errRemoteReference }

var unicodeEscape = regexp.MustCompile(`\\u([0-9A-Fa-f]{4})`)

// compilePattern supports the patterns of JSON Schema that a matcher in linear time can:
// \uXXXX is translated, look-around and back-references are rejected.
func compilePattern(pattern string) (jsonschema.Regexp, error) {
	return regexp.Compile(unicodeEscape.ReplaceAllString(pattern, `\x{$1}`))
}

// badPattern ends the message about a pattern that compilePattern rejects.
const badPattern = "not a regular expression that can be used (look-around and back-references are not supported)"

// faultsOf turns an error of the compiler into places and plain messages.
func faultsOf(err error, schema any) []Fault {
	var (
		invalid  *jsonschema.SchemaValidationError
		badRegex *jsonschema.InvalidRegexError
		remote   *jsonschema.LoadURLError
		dangling *jsonschema.JSONPointerNotFoundError
		noAnchor *jsonschema.AnchorNotFoundError
	)
	switch {
	case errors.As(err, &invalid):
		return metaschemaFaults(invalid)
	case errors.As(err, &badRegex):
		return []Fault{{Pointer: fragment(badRegex.URL), Message: "the pattern is " + badPattern}}
	case errors.As(err, &remote):
		leaves := func(ref string) bool { return !strings.HasPrefix(ref, "#") }
		return []Fault{{Pointer: findReference(schema, leaves), Message: "it refers to another document, and nothing outside the template is loaded"}}
	case errors.As(err, &dangling):
		fits := func(ref string) bool { return strings.HasSuffix(dangling.URL, ref) }
		return []Fault{{Pointer: findReference(schema, fits), Message: "the reference leads nowhere"}}
	case errors.As(err, &noAnchor):
		fits := func(ref string) bool { return strings.HasSuffix(noAnchor.Reference, ref) }
		return []Fault{{Pointer: findReference(schema, fits), Message: "the reference leads nowhere"}}
	}
	return []Fault{{Message: wording.Line(strings.ReplaceAll(err.Error(), schemaURL, ""))}}
}

// metaschemaFaults are the faults of the schema itself, one per place. Where alternatives
// failed, the one with a list of allowed words is the most helpful.
func metaschemaFaults(err *jsonschema.SchemaValidationError) []Fault {
	var failed *jsonschema.ValidationError
	if !errors.As(err.Err, &failed) {
		return []Fault{{Message: wording.Line(err.Err.Error())}}
	}
	var faults []Fault
	index := map[string]int{}
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) > 0 || len(faults) >= maxViolations {
			return
		}
		place := Pointer(e.InstanceLocation)
		at, known := index[place]
		if _, words := e.ErrorKind.(*kind.Enum); known && !words {
			return
		}
		if !known {
			at = len(faults)
			index[place] = at
			faults = append(faults, Fault{Pointer: e.InstanceLocation})
		}
		faults[at].Message = violationMessage(e.ErrorKind)
		if n := len(e.InstanceLocation); n > 0 {
			faults[at].Message = fmt.Sprintf("%.64q %s", e.InstanceLocation[n-1], faults[at].Message)
		}
	}
	walk(failed)
	return faults
}

// fragment splits the JSON pointer after the # of a URL.
func fragment(location string) []string {
	_, pointer, _ := strings.Cut(location, "#")
	if text, err := url.PathUnescape(pointer); err == nil {
		pointer = text
	}
	pointer = strings.TrimPrefix(pointer, "/")
	if pointer == "" {
		return nil
	}
	parts := strings.Split(pointer, "/")
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i := range parts {
		parts[i] = unescape.Replace(parts[i])
	}
	return parts
}

// findReference finds the first reference that fits, as a pointer; nil, the schema itself,
// when there is none.
func findReference(v any, fits func(string) bool) []string {
	found, _ := searchReference(v, fits)
	return found
}

func searchReference(v any, fits func(string) bool) ([]string, bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"$ref", "$dynamicRef", "$recursiveRef", "$schema"} {
			if ref, ok := v[key].(string); ok && fits(ref) {
				return []string{key}, true
			}
		}
		for _, key := range sorted(v) {
			if rest, ok := searchReference(v[key], fits); ok {
				return append([]string{key}, rest...), true
			}
		}
	case []any:
		for i, item := range v {
			if rest, ok := searchReference(item, fits); ok {
				return append([]string{fmt.Sprint(i)}, rest...), true
			}
		}
	}
	return nil, false
}

// Keywords whose value is a schema, a list of schemas, or a mapping from names
// to schemas.
var (
	schemaKeywords = []string{
		"items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains",
		"propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
	}
	schemaListKeywords = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemaMapKeywords  = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)

// relaxing repairs a schema in place, see Compile.
type relaxing struct{ hoisted [][]string }

func (r *relaxing) relax(v any, at []string) {
	s, ok := v.(map[string]any)
	if !ok {
		return
	}
	for key, value := range s {
		if value == nil && key != "const" && key != "default" {
			delete(s, key)
		}
	}
	for _, key := range schemaKeywords {
		r.relax(s[key], below(at, key))
	}
	for _, key := range schemaListKeywords {
		if list, ok := s[key].([]any); ok {
			for i, item := range list {
				r.relax(item, below(at, key, strconv.Itoa(i)))
			}
		}
	}
	for _, key := range schemaMapKeywords {
		if named, ok := s[key].(map[string]any); ok {
			for _, name := range sorted(named) {
				if named[name] == nil {
					named[name] = true // a property without constraints
				}
				r.relax(named[name], below(at, key, name))
			}
		}
	}
	r.hoist(s, at)
}

// hoist moves required: true from the properties of an object to its list.
func (r *relaxing) hoist(s map[string]any, at []string) {
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return
	}
	required, isList := s["required"].([]any)
	if _, present := s["required"]; present && !isList {
		return // this object's own flag; its parent handles it
	}
	for _, name := range sorted(properties) {
		property, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		flag, ok := property["required"].(bool)
		if !ok {
			continue
		}
		delete(property, "required")
		r.hoisted = append(r.hoisted, below(at, "properties", name, "required"))
		if flag && !slices.Contains(required, any(name)) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		s["required"] = required
	}
}

func below(at []string, parts ...string) []string {
	return append(slices.Clone(at), parts...)
}

// sorted gives map walks a stable order, so that findings are deterministic.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// maxFanOut bounds how many subschemas may apply to one and the same
// value. A few lines of references that each refer to the next one twice would
// otherwise keep the check of a tiny context busy for hours.
const maxFanOut = 10_000

// checkCost examines every reachable schema and returns the fault of the first that is
// too expensive or never ends; nil when none is.
func checkCost(reachable []*jsonschema.Schema) []Fault {
	c := cost{fanOut: map[*jsonschema.Schema]int{}, busy: map[*jsonschema.Schema]bool{}}
	for _, s := range reachable {
		if c.measure(s) > maxFanOut && c.fault == "" {
			c.fault = "it applies too many subschemas to one value"
		}
		if c.fault != "" {
			return []Fault{{Pointer: fragment(s.Location), Message: c.fault}}
		}
	}
	return nil
}

// reachableFrom returns schemas and all that they can apply, each once.
func reachableFrom(roots []*jsonschema.Schema) (list []*jsonschema.Schema) {
	seen := map[*jsonschema.Schema]bool{nil: true}
	for next := roots; len(next) > 0; {
		s := next[0]
		next = next[1:]
		if seen[s] {
			continue
		}
		seen[s], list = true, append(list, s)
		next = append(append(append(next, sameValue(s)...), partsOfValue(s)...), s.RecursiveRef)
		if s.DynamicRef != nil {
			next = append(next, s.DynamicRef.Ref)
		}
	}
	return list
}

type cost struct {
	fanOut map[*jsonschema.Schema]int
	busy   map[*jsonschema.Schema]bool // being measured
	fault  string
}

// measure counts the schemas that apply to a value when s does. Its recursion
// is as deep as the longest chain of references.
func (c *cost) measure(s *jsonschema.Schema) int {
	if n, known := c.fanOut[s]; known {
		return n
	}
	if c.busy[s] {
		c.fault = "it refers to itself without end"
		return 0
	}
	c.busy[s] = true
	n := 1
	for _, next := range sameValue(s) {
		if next != nil && c.fault == "" {
			n = min(n+c.measure(next), maxFanOut+1)
		}
	}
	delete(c.busy, s)
	c.fanOut[s] = n
	return n
}

// sameValue lists the subschemas that apply to the value itself; some are nil.
func sameValue(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf)
	for _, name := range sorted(s.DependentSchemas) {
		list = append(list, s.DependentSchemas[name])
	}
	for _, name := range sorted(s.Dependencies) {
		if d, ok := s.Dependencies[name].(*jsonschema.Schema); ok {
			list = append(list, d)
		}
	}
	return list
}

// partsOfValue lists the subschemas that apply to properties, names and items
// of the value; some are nil.
func partsOfValue(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{
		s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020, s.UnevaluatedItems, s.ContentSchema,
	}, s.PrefixItems)
	for _, name := range sorted(s.Properties) {
		list = append(list, s.Properties[name])
	}
	for _, p := range s.PatternProperties {
		list = append(list, p)
	}
	for _, v := range []any{s.AdditionalProperties, s.Items, s.AdditionalItems} {
		switch v := v.(type) {
		case *jsonschema.Schema:
			list = append(list, v)
		case []*jsonschema.Schema:
			list = append(list, v...)
		}
	}
	return list
}
