package workflow

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// schemaURL names the schema inside the compiler; it is never fetched.
const schemaURL = "tasker:///schema.json"

// schemaFault is a fault of a schema and its place.
type schemaFault struct {
	pointer []string
	message string
}

// checkSchema reports a schema that cannot be compiled. For schemas that reject nothing the
// severity is a warning.
func (r *templateReader) checkSchema(n *yamlNode, path string, severity Severity) {
	if n.kind != yamlMap && n.kind != yamlBool {
		r.report(severity, n.pos, CodeType, path, fmt.Sprintf("%s has to be a JSON Schema, not %s", path, n.kind))
		return
	}
	value := r.plain(n, path) // a copy, since it is changed
	var hoisted [][]string
	relaxSchema(value, nil, func(pointer []string) { hoisted = append(hoisted, pointer) })
	for _, pointer := range hoisted {
		r.warnf(n.at(pointer).pos, CodeSchemaInvalid, path+jsonPointer(pointer),
			"a required: true or false at a property is read as an entry of the required list of its object")
	}
	_, faults := compileRelaxed(value)
	for _, fault := range faults {
		r.report(severity, n.at(fault.pointer).pos, CodeSchemaInvalid, path+jsonPointer(fault.pointer), path+" is not a valid JSON Schema: "+fault.message)
	}
}

// checkSchemaIsObject warns when a schema does not require an object: a context always is
// one, and a result should be.
func (r *templateReader) checkSchemaIsObject(n *yamlNode, path string) {
	if n.kind != yamlMap && n.kind != yamlBool {
		return // reported already
	}
	if n.hasField("$ref", "allOf", "anyOf", "oneOf", "$dynamicRef") {
		return
	}
	at := n.pos
	if n.kind == yamlMap {
		if f := n.field("type"); f != nil {
			if f.value.text == "object" {
				return
			}
			for _, item := range f.value.items {
				if item.text == "object" {
					return
				}
			}
			at = f.value.pos
		}
	}
	r.warnf(at, CodeSchemaNotObject, path, "%s does not say type: object", path)
}

// compileSchema compiles a decoded schema, which it may change.
func compileSchema(value any) (*jsonschema.Schema, []schemaFault) {
	relaxSchema(value, nil, func([]string) {})
	return compileRelaxed(value)
}

// compileRelaxed tries the newest draft first. Files without $schema are
// sometimes written for an older one (a list under items, exclusiveMinimum:
// true); the fault reported is the one of the newest.
func compileRelaxed(value any) (*jsonschema.Schema, []schemaFault) {
	schema, faults := compileDraft(value, jsonschema.Draft2020)
	if faults == nil {
		return schema, nil
	}
	for _, draft := range []*jsonschema.Draft{jsonschema.Draft7, jsonschema.Draft4} {
		if schema, older := compileDraft(value, draft); older == nil {
			return schema, nil
		}
	}
	return nil, faults
}

// compileDraft returns either a schema or at least one fault.
func compileDraft(value any, draft *jsonschema.Draft) (schema *jsonschema.Schema, faults []schemaFault) {
	defer func() {
		if p := recover(); p != nil {
			schema, faults = nil, []schemaFault{{message: "it cannot be compiled: " + cleanMessage(fmt.Sprint(p))}}
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
		return nil, []schemaFault{{message: cleanMessage(err.Error())}}
	}
	schema, err := c.Compile(schemaURL)
	if err != nil {
		return nil, faultsOf(err, value)
	}
	if faults := checkSchemaCost(schema); faults != nil {
		return nil, faults
	}
	return schema, nil
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
func faultsOf(err error, schema any) []schemaFault {
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
		return []schemaFault{{fragment(badRegex.URL), "the pattern is " + badPattern}}
	case errors.As(err, &remote):
		leaves := func(ref string) bool { return !strings.HasPrefix(ref, "#") }
		return []schemaFault{{findReference(schema, leaves), "it refers to another document, and nothing outside the template is loaded"}}
	case errors.As(err, &dangling):
		fits := func(ref string) bool { return strings.HasSuffix(dangling.URL, ref) }
		return []schemaFault{{findReference(schema, fits), "the reference leads nowhere"}}
	case errors.As(err, &noAnchor):
		fits := func(ref string) bool { return strings.HasSuffix(noAnchor.Reference, ref) }
		return []schemaFault{{findReference(schema, fits), "the reference leads nowhere"}}
	}
	return []schemaFault{{message: cleanMessage(strings.ReplaceAll(err.Error(), schemaURL, ""))}}
}

// metaschemaFaults are the faults of the schema itself, one per place. Where alternatives
// failed, the one with a list of allowed words is the most helpful.
func metaschemaFaults(err *jsonschema.SchemaValidationError) []schemaFault {
	var failed *jsonschema.ValidationError
	if !errors.As(err.Err, &failed) {
		return []schemaFault{{message: cleanMessage(err.Err.Error())}}
	}
	var faults []schemaFault
	index := map[string]int{}
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) > 0 || len(faults) >= maxSchemaViolations {
			return
		}
		place := jsonPointer(e.InstanceLocation)
		at, known := index[place]
		if _, words := e.ErrorKind.(*kind.Enum); known && !words {
			return
		}
		if !known {
			at = len(faults)
			index[place] = at
			faults = append(faults, schemaFault{pointer: e.InstanceLocation})
		}
		faults[at].message = violationMessage(e.ErrorKind)
		if n := len(e.InstanceLocation); n > 0 {
			faults[at].message = fmt.Sprintf("%q %s", clip(e.InstanceLocation[n-1], 64), faults[at].message)
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
		for _, key := range sortedKeys(v) {
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
