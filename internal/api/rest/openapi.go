package rest

import (
	_ "embed"
	"encoding"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/internal/wire"
)

// document is the OpenAPI 3.1 document of a server under construction: the routes describe
// themselves by the types and tags that they are read with.
type document struct {
	OpenAPI    string                    `json:"openapi"`
	Info       object                    `json:"info"`
	Tags       []object                  `json:"tags"` // in the order of their routes, those of tasks first
	Paths      map[string]object         `json:"paths"`
	Components map[string]map[string]any `json:"components"`
}

type object = map[string]any

//go:embed examples.json
var examplesText []byte

// examples are bodies of requests by operation.
var examples = func() (list map[string]json.RawMessage) {
	_ = json.Unmarshal(examplesText, &list) // it is ours, and a test looks at each
	return list
}()

func newDocument(title, version, keyHeader string, cookie bool) *document {
	d := &document{OpenAPI: "3.1.0", Info: object{"title": title, "version": version}, Paths: map[string]object{},
		Components: map[string]map[string]any{"schemas": {}, "responses": {}, "securitySchemes": {
			"bearer": object{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
			"apiKey": object{"type": "apiKey", "in": "header", "name": keyHeader},
		}}}
	if cookie {
		d.Components["securitySchemes"]["browserSession"] = object{"type": "apiKey", "in": "cookie", "name": sessionCookie}
	}
	return d
}

// add describes a route by its parameters, body (nil: none) and answer.
func (d *document) add(op operation, needed access, params []param, body, answer reflect.Type) {
	media, schema := op.media, object{"type": "string"}
	if media == "" {
		media, schema = "application/json", d.schema(answer)
	}
	content := object{media: object{"schema": schema}}
	status := op.successStatus()
	success := object{"description": http.StatusText(status), "content": content}
	if status == http.StatusNoContent || status == http.StatusSeeOther {
		delete(success, "content")
	}
	responses := object{"default": d.failure(op.failure), strconv.Itoa(status): success}
	for _, status := range failuresOf(op, params, body != nil) {
		responses[strconv.Itoa(status)] = d.refusedWith(op.failure, status)
	}
	if !slices.ContainsFunc(d.Tags, func(tag object) bool { return tag["name"] == op.tag }) {
		d.Tags = append(d.Tags, object{"name": op.tag})
	}
	if op.also != "" {
		responses["200"] = object{"description": op.also, "content": content}
	}
	described := object{"operationId": op.id, "summary": op.summary, "tags": []string{op.tag}, "responses": responses}
	if !needed.open() {
		described["security"] = d.security()
		responses["401"] = d.refusal("No credentials, or bad ones")
	}
	if needed.needs != "" {
		described["x-required-permission"] = needed.needs
		responses["403"] = d.refusal("Without the permission " + string(needed.needs) + ", or outside of the namespaces")
	}
	var list []object
	for _, p := range params {
		list = append(list, d.parameter(&p))
	}
	if list != nil {
		described["parameters"] = list
	}
	if body != nil {
		content := object{"schema": d.schema(body)}
		if example := examples[op.id]; example != nil {
			content["example"] = example
		}
		described["requestBody"] = object{"required": !op.optional, "content": object{"application/json": content}}
		d.Components["schemas"][componentName(body)].(object)["additionalProperties"] = ignoresKeys(op.id) //nolint:errcheck,forcetypeassert // set by component
	}
	if d.Paths[op.path] == nil {
		d.Paths[op.path] = object{}
	}
	d.Paths[op.path][strings.ToLower(op.method)] = described
}

// security are the credentials of which a request has one.
func (d *document) security() []object {
	list := []object{{"bearer": []string{}}, {"apiKey": []string{}}}
	if d.Components["securitySchemes"]["browserSession"] != nil {
		list = append(list, object{"browserSession": []string{}})
	}
	return list
}

// refusal describes an answer to missing credentials and permissions, whose shape is the same
// everywhere.
func (d *document) refusal(text string) object {
	f := d.failure(shapeEnvelope)
	f["description"] = text
	return f
}

// failuresOf are the statuses of failures that an operation may have, beside those of access.
func failuresOf(op operation, params []param, body bool) (statuses []int) {
	statuses = append(statuses, http.StatusInternalServerError, http.StatusGatewayTimeout, http.StatusServiceUnavailable)
	if len(params) > 0 || body || !op.ofTasker() {
		statuses = append(statuses, http.StatusBadRequest)
	}
	if slices.ContainsFunc(params, func(p param) bool { return p.in == "path" }) || body {
		statuses = append(statuses, http.StatusNotFound)
	}
	if op.method != http.MethodGet {
		statuses = append(statuses, http.StatusConflict)
	}
	if body {
		statuses = append(statuses, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
	}
	return statuses
}

// refusedWith refers to a failure of a status, which is described once for each shape.
func (d *document) refusedWith(s shape, status int) object {
	name := []string{"Failure", "Problem", "WorkerFailure"}[s] + strconv.Itoa(status)
	if d.Components["responses"][name] == nil {
		described := d.failure(s)
		described["description"] = http.StatusText(status)
		if status == http.StatusServiceUnavailable {
			described["headers"] = object{"Retry-After": object{"schema": object{"type": "integer"}, "description": "Seconds"}}
		}
		d.Components["responses"][name] = described
	}
	return object{"$ref": "#/components/responses/" + name}
}

func ignoresKeys(op string) bool {
	_, lenient := tolerant[op]
	return lenient
}

func (d *document) failure(s shape) object {
	media, t := "application/json", reflect.TypeFor[wire.ErrorBody]()
	switch s {
	case shapeProblem:
		media, t = problemMediaType, reflect.TypeFor[problem]()
	case shapeFlat:
		t = reflect.TypeFor[flatError]()
	}
	return object{"description": "Failure", "content": object{media: object{"schema": d.schema(t)}}}
}

func (d *document) parameter(p *param) object {
	w := object{"name": p.name, "in": p.in, "schema": d.field(p.field)}
	if p.field.Type.Kind() == reflect.Slice {
		w["schema"] = object{"type": "array", "items": d.schema(p.field.Type.Elem())}
	}
	if p.in == "query" {
		w["explode"] = p.field.Type.Kind() == reflect.Slice
	}
	if p.in == "path" || p.field.Tag.Get("required") == "true" {
		w["required"] = true
	}
	if doc := p.field.Tag.Get("doc"); doc != "" {
		w["description"] = doc
	}
	return w
}

// field is the schema of a field with its tags.
func (d *document) field(f reflect.StructField) object {
	s := d.schema(f.Type)
	if nullable, ok := s["type"].([]string); ok && f.Type.Kind() == reflect.Pointer && strings.Contains(f.Tag.Get("json"), "omitempty") {
		s["type"] = nullable[0] // it is absent instead
	}
	if s["$ref"] != nil && f.Type.Kind() == reflect.Pointer && !strings.Contains(f.Tag.Get("json"), "omitempty") {
		s = object{"anyOf": []object{s, {"type": "null"}}}
	}
	for tag, key := range map[string]string{"doc": "description", "format": "format"} {
		if text := f.Tag.Get(tag); text != "" {
			s[key] = text
		}
	}
	for _, key := range []string{"minimum", "maximum", "maxLength", "minItems", "maxItems", "default"} {
		if n, err := strconv.Atoi(f.Tag.Get(key)); err == nil {
			s[key] = n
		}
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		s["enum"] = strings.Split(enum, ",")
	}
	return s
}

// schema returns the schema of a type; structs are described among the components.
func (d *document) schema(t reflect.Type) object {
	s := object{}
	pointer := t.Kind() == reflect.Pointer
	if pointer {
		t = t.Elem()
	}
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[json.RawMessage]() || kind == reflect.Interface:
		return s
	case t == reflect.TypeFor[number]():
		return object{"type": "integer"}
	case kind == reflect.String || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		s["type"] = "string"
	case kind == reflect.Struct:
		return d.component(t)
	case kind == reflect.Slice:
		return object{"type": []string{"array", "null"}, "items": d.schema(t.Elem())}
	case kind == reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case kind == reflect.Bool:
		s["type"] = "boolean"
	case kind == reflect.Float64:
		s["type"], s["format"] = "number", "double"
	default:
		s["type"], s["format"] = "integer", "int"+strconv.Itoa(t.Bits())
		if t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 {
			s["minimum"] = 0
		}
	}
	if pointer {
		s["type"] = []string{s["type"].(string), "null"} //nolint:errcheck,forcetypeassert // set above
	}
	return s
}

// component describes a struct once and returns the reference to it.
func (d *document) component(t reflect.Type) object {
	name := componentName(t)
	schemas := d.Components["schemas"]
	if schemas[name] == nil {
		properties, required := object{}, []string{}
		s := object{"type": "object", "additionalProperties": false, "properties": properties}
		schemas[name] = s // before its fields, which may refer to it
		for _, f := range reflect.VisibleFields(t) {
			key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "" {
				continue
			}
			properties[key] = d.field(f)
			if !strings.Contains(options, "omit") {
				required = append(required, key)
			}
		}
		if len(required) > 0 {
			s["required"] = required
		}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// componentName is the name of a type in the document.
func componentName(t reflect.Type) string {
	return strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
}
