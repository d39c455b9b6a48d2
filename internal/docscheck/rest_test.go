package docscheck_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// routeDoc is what the REST reference shows of an operation.
type routeDoc struct {
	Summary    string
	Tags       []string
	Permission string `json:"x-required-permission"`
	Parameters []struct {
		Name, In, Description string
		Required              bool
	}
	RequestBody struct{ Content map[string]contentDoc }
	Responses   map[string]struct{ Content map[string]contentDoc }
}

type contentDoc struct{ Schema schemaDoc }

// schemaDoc is a JSON Schema, as far as the reference shows it.
type schemaDoc struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Enum        []any
	Items       *schemaDoc
	Properties  map[string]schemaDoc
	Required    []string
}

// name is the schema's name, of an array that of its items; "" for one without a name.
func (s schemaDoc) name() string {
	if s.Items != nil {
		return s.Items.name()
	}
	return path.Base("/" + s.Ref)
}

// kind is the type of a field in a word or two.
func (s schemaDoc) kind() string {
	list, many := s.Type.([]any)
	switch {
	case s.Ref != "":
		return s.name()
	case s.Items != nil:
		return "list of " + s.Items.kind()
	case len(s.Enum) > 0:
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(s.Enum), "[]"), " ", ", ")
	case many && len(list) > 0:
		return fmt.Sprint(list[0])
	case s.Type == nil:
		return "JSON"
	}
	return fmt.Sprint(s.Type)
}

// TestRESTReferenceIsUpToDate: docs/reference/rest.md shows the routes of both daemons.
func TestRESTReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("# REST reference\n\n<!-- Generated from the OpenAPI documents of the daemons by\n     go test ./internal/docscheck -update. Do not edit. -->\n\n" +
		"Every route of both daemons, its permission, query and answers; below them the fields of the bodies. A daemon serves the\n" +
		"whole document at `/api-docs/openapi.json`, and to people at `/api-docs/ui`. [Wire compatibility](../use/migrating.md) says what the fields\n" +
		"mean to clients of Tasker, [access](../operate/security.md) what a permission allows. A failure is a JSON object with `error.code` and\n" +
		"`error.message`; each route may answer 500, 503 and 504 too, and 401 and 403 where it needs a permission.\n")
	for _, daemon := range []string{"orchestrator", "worker"} {
		routes, schemas := documentedRoutes(t, daemon)
		writeRoutes(&b, daemon, routes, schemas)
	}
	compare(t, "docs/reference/rest.md", b.String())
}

// documentedRoutes reads the golden OpenAPI document of a daemon, with its routes by tag.
func documentedRoutes(t *testing.T, daemon string) (routes map[string][]string, schemas map[string]schemaDoc) {
	t.Helper()
	routes, schemas = map[string][]string{}, map[string]schemaDoc{}
	for line := range strings.Lines(page(t, "internal/api/rest/testdata/openapi_"+daemon+".txt")) {
		name, text, found := strings.Cut(strings.TrimSpace(line), " {")
		require.True(t, found, line)
		if method, route, isRoute := strings.Cut(name, " "); isRoute {
			var r routeDoc
			require.NoError(t, json.Unmarshal([]byte("{"+text), &r), line)
			tag := strings.Join(r.Tags, ", ")
			routes[tag] = append(routes[tag], r.row(strings.ToUpper(method), route))
			continue
		}
		var s schemaDoc
		require.NoError(t, json.Unmarshal([]byte("{"+text), &s), line)
		schemas[name] = s
	}
	require.NotEmpty(t, routes)
	require.NotEmpty(t, schemas)
	return routes, schemas
}

// row is the line of a route in its table.
func (r routeDoc) row(method, route string) string {
	var query, answers, failures []string
	for _, p := range r.Parameters {
		if p.In == "query" {
			query = append(query, "`"+p.Name+"`")
		}
	}
	for _, status := range slices.Sorted(maps.Keys(r.Responses)) {
		switch {
		case status < "3":
			answers = append(answers, status+named(r.Responses[status].Content))
		case status < "5" && status != "401" && status != "403":
			failures = append(failures, status)
		}
	}
	return fmt.Sprintf("| `%s %s` | %s | %s | %s | %s | %s |\n", method, route, cell(r.Summary),
		cmp.Or(r.Permission, "–"), strings.Join(query, ", "), strings.TrimSpace(named(r.RequestBody.Content)), strings.Join(append(answers, failures...), ", "))
}

// named is the name of the schema of a content, after a blank.
func named(content map[string]contentDoc) string {
	for _, kind := range slices.Sorted(maps.Keys(content)) {
		if name := content[kind].Schema.name(); name != "/" {
			return " " + name
		}
	}
	return ""
}

// cell is a text as a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(text)
}

func writeRoutes(b *strings.Builder, daemon string, routes map[string][]string, schemas map[string]schemaDoc) {
	fmt.Fprintf(b, "\n## Routes of the %s\n", daemon)
	for _, tag := range slices.Sorted(maps.Keys(routes)) {
		fmt.Fprintf(b, "\n### %s: %s\n\n| route | | permission | query | body | answers |\n|---|---|---|---|---|---|\n", daemon, tag)
		b.WriteString(strings.Join(routes[tag], ""))
	}
	fmt.Fprintf(b, "\n## Bodies of the %s\n\nRequired fields are marked with *.\n", daemon)
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		s := schemas[name]
		if len(s.Properties) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n**%s**\n\n", name)
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			mark, p := "", s.Properties[field]
			if slices.Contains(s.Required, field) {
				mark = "*"
			}
			fmt.Fprintf(b, "- `%s`%s %s%s\n", field, mark, cell(p.kind()), cell(strings.TrimSuffix(": "+p.Description, ": ")))
		}
	}
}
