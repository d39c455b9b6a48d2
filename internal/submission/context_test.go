package submission

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/perfguard"
)

func TestBoundsOfContexts(t *testing.T) {
	t.Parallel()
	nested := func(n int, inside string) string {
		return `{"a":` + strings.Repeat("[", n) + inside + strings.Repeat("]", n) + `}`
	}
	for _, valid := range []string{
		`{}`, `{ }`, `{"a":[],"b":{},"c":null,"d":true,"e":false}`, `{"a":"\"\\\/\b\f\n\r\té\u00e9\uFFFF"}`, "{\n\t\"a\" : [ 1 , 2 ]\r\n}",
		nested(99, ""), nested(99, "1"), `{"a":[` + strings.Repeat("1,", 100_000) + `1]}`, `{"a":"` + strings.Repeat("é", 500_000) + `"}`,
	} {
		require.NoError(t, CheckContext(json.RawMessage(valid)), "%.60s", valid)
	}
	for wrong, want := range map[string]string{
		``: "context must be a JSON object", `1`: "context must be a JSON object", `{} {}`: "context must be a JSON object", "{\"a\":\"\xff\"}": "context must be UTF-8",
		nested(100, ""): "context must not be nested deeper than 100 levels", nested(100, "1"): "must not be nested deeper",
		`{"a":{"b":[0,{"c":"\u0000"}]}}`: "context.a.b[1].c contains the character NUL", `{"a":[{},{"\u0000":1}]}`: "context.a[1] has a key",
		`{"a":{"` + strings.Repeat("k", 50) + `":1e400}}`: "context.a." + strings.Repeat("k", 40) + "… is out of range",
		`{` + strings.Repeat(" ", MaxDocumentBytes) + `}`: "at most 1048576 bytes",
	} {
		require.ErrorContains(t, CheckContext(json.RawMessage(wrong)), want, "%.60s", wrong)
	}
	require.NoError(t, CheckValue("data", json.RawMessage(`"text"`)))
	require.ErrorContains(t, CheckValue("data", json.RawMessage(`[1`)), "data must be JSON")
	require.ErrorContains(t, CheckValue("data", nil), "data must be JSON")
}

// TestBoundsByKeys are those of former versions, which are off unless they are configured.
func TestBoundsByKeys(t *testing.T) {
	t.Parallel()
	former := Bounds{Bytes: 64 << 10, Depth: 10, Items: 1000, Text: 10_000}
	for _, valid := range []string{`{"a":[` + strings.Repeat("1,", 999) + `1]}`, `{"a":"` + strings.Repeat("é", 10_000) + `"}`, `{"a":"` + strings.Repeat(`\u00e9`, 10_000) + `"}`} {
		require.NoError(t, former.CheckContext(json.RawMessage(valid)), "%.60s", valid)
	}
	for wrong, want := range map[string]string{
		`{"a":` + strings.Repeat("[", 10) + strings.Repeat("]", 10) + `}`: "context must not be nested deeper than 10 levels",
		`{"a":[{},{"` + strings.Repeat("k", 10_001) + `":1}]}`:            "context.a[1] has a key",
		`{` + strings.Repeat(`"a":1,`, 1000) + `"b":1}`:                   "context must have at most 1000 keys",
		`{"b":1,"a":[` + strings.Repeat("1,", 1000) + `1]}`:               "context.a must have at most 1000 elements",
		`{"a":"` + strings.Repeat(`\u00e9`, 10_001) + `"}`:                "context.a must have at most 10000 characters",
		`{` + strings.Repeat(" ", 64<<10) + `}`:                           "at most 65536 bytes",
	} {
		require.ErrorContains(t, former.CheckContext(json.RawMessage(wrong)), want, "%.60s", wrong)
	}
}

func BenchmarkCheckContext(b *testing.B)     { perfguard.Benchmark(b, contextCases()) }
func TestCheckContextAllocates(t *testing.T) { perfguard.Allocations(t, contextCases()) }

func contextCases() []perfguard.Case {
	return []perfguard.Case{{Name: "small", Allocs: 0, Prepare: func(testing.TB) func() error {
		context := json.RawMessage(`{"even_number":2,"run":"dzkq1","task":12345}`)
		return func() error { return CheckContext(context) }
	}}}
}
