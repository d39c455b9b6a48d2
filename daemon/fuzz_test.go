//go:build fuzzapi

package daemon

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// leastCases are sent to each daemon in each way.
const leastCases = 20_000

var generated = regexp.MustCompile(`(\d+) generated, (\d+) passed`)

// notFuzzed are the operations after which the daemon rightly answers 5xx.
var notFuzzed = []string{"force-breaker", "set-deployment-mode"}

// TestFuzzedAPI sends what schemathesis makes of the API's description to an orchestrator that
// wants credentials, with and without them: no answer is a failure of the server, and all are
// as described.
func TestFuzzedAPI(t *testing.T) {
	const guarded = "\n[orchestration.web.auth]\nenabled = true\napi_keys_enabled = true\napi_key_header = \"X-Tasker-Key\"\napi_key = \"all\"\n"
	for name, key := range map[string]string{"with a key": "all", "without": ""} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, guarded+"[worker.web.auth]\nallow_anonymous = true\n", nil)
			spec := p.rest + "/api-docs/openapi.json"
			args := []string{"run", spec, "--no-color", "--workers", "2", "--request-timeout", "30", "--continue-on-failure", "--generation-database", "none", "--max-examples", "250",
				"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance"}
			for _, id := range append(streams(t, spec), notFuzzed...) {
				args = append(args, "--exclude-operation-id", id)
			}
			if key != "" {
				args = append(args, "--header", "X-Tasker-Key: "+key)
			}
			program, err := filepath.Abs("../.tools/schemathesis/bin/schemathesis")
			require.NoError(t, err)
			run := exec.CommandContext(t.Context(), program, args...) // #nosec G204 -- our own
			run.Dir = t.TempDir()                                     // it leaves files
			out, err := run.CombinedOutput()
			require.NoError(t, err, "%s", out)
			found := generated.FindSubmatch(out)
			require.NotNil(t, found, "%s", out)
			t.Logf("%s", found[0])
			require.Equal(t, string(found[1]), string(found[2]))
			cases, err := strconv.Atoi(string(found[1]))
			require.NoError(t, err)
			require.GreaterOrEqual(t, cases, leastCases)
		})
	}
}

// streams are the operations whose answers do not end.
func streams(t *testing.T, spec string) (ids []string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			ID        string `json:"operationId"`
			Responses map[string]struct {
				Content map[string]json.RawMessage `json:"content"`
			} `json:"responses"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal([]byte(request(t, "GET", spec, "").body), &doc))
	for _, methods := range doc.Paths {
		for _, operation := range methods {
			if operation.Responses["200"].Content["text/event-stream"] != nil {
				ids = append(ids, operation.ID)
			}
		}
	}
	slices.Sort(ids)
	return ids
}
