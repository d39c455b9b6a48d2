package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/internal/wire"
)

// documented is the OpenAPI document with a line for each route and schema.
func documented(t *testing.T, document []byte) string {
	t.Helper()
	var d struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	require.NoError(t, json.Unmarshal(document, &d))
	var b strings.Builder
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
			fmt.Fprintf(&b, "%s %s %s\n", method, path, d.Paths[path][method])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		fmt.Fprintf(&b, "%s %s\n", name, d.Components.Schemas[name])
	}
	return b.String()
}

// Each operation has its failures described, and each body an example that fits its schema.
func TestOpenAPIIsComplete(t *testing.T) {
	t.Parallel()
	document := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.Breakers = shownBreakers{breaker.Closed}
		o.Queues, o.Compat = lockedQueues{}, rest.Compat{DistributedTaskQueue: true, TaskQueueEngine: true}
		o.RunSweep = func(context.Context, string, bool) (sweep.Run, error) { return sweep.Run{}, nil }
	}).server.OpenAPI()
	var d struct {
		Tags  []struct{ Name string }
		Paths map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
			RequestBody struct {
				Content map[string]struct{ Schema, Example json.RawMessage }
			}
		}
	}
	require.NoError(t, json.Unmarshal(document, &d))
	require.Equal(t, "tasks", d.Tags[0].Name)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("http://localhost/openapi.json", doc))
	for path, methods := range d.Paths {
		for method, op := range methods {
			for _, status := range []string{"500", "503", "504"} {
				require.Contains(t, op.Responses, status, op.OperationID)
			}
			for _, content := range op.RequestBody.Content {
				require.Contains(t, op.Responses, "413", op.OperationID)
				require.NotEmpty(t, content.Example, op.OperationID)
				escaped := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(path)
				schema, err := compiler.Compile("http://localhost/openapi.json#/paths/" + escaped + "/" + method + "/requestBody/content/application~1json/schema")
				require.NoError(t, err)
				example, err := jsonschema.UnmarshalJSON(bytes.NewReader(content.Example))
				require.NoError(t, err)
				require.NoError(t, schema.Validate(example), op.OperationID)
			}
		}
	}
}

// The document is a contract: clients are generated from it. -update writes its record anew.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	breakers := shownBreakers{breaker.Closed}
	h := newHouse(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.Breakers = breakers
		o.Queues, o.Compat = lockedQueues{}, rest.Compat{DistributedTaskQueue: true, TaskQueueEngine: true}
		o.Config = func() *client.OrchestratorConfig { return &client.OrchestratorConfig{} }
		o.RunSweep = func(context.Context, string, bool) (sweep.Run, error) { return sweep.Run{}, nil }
	})
	worker, err := rest.NewWorker(bounded(t, rest.Config{LogLevels: levels(t)}), rest.Worker{ID: "w", Type: "general", Status: newFakeStatus(), Breakers: breakers,
		Events: func() wire.EventMetrics { return wire.EventMetrics{} }, Templates: newFakeStore(),
		Config: func() *client.WorkerConfig { return &client.WorkerConfig{} }})
	require.NoError(t, err)
	for name, document := range map[string][]byte{"orchestrator": h.server.OpenAPI(), "worker": worker.OpenAPI()} {
		file, got := "testdata/openapi_"+name+".txt", documented(t, document)
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
		}
		want, err := os.ReadFile(file) // #nosec G304 -- a file of ours
		require.NoError(t, err)
		require.Equal(t, strings.Split(string(want), "\n"), strings.Split(got, "\n"))
	}
}
