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
		nested(10, ""), nested(9, "1"), `{"a":[` + strings.Repeat("1,", MaxContextItems-1) + `1]}`, `{"a":"` + strings.Repeat("é", MaxStringLength) + `"}`,
		`{"a":"` + strings.Repeat(`\u00e9`, MaxStringLength) + `"}`,
	} {
		require.NoError(t, CheckContext(json.RawMessage(valid)), "%.60s", valid)
	}
	for wrong, want := range map[string]string{
		``: "context must be a JSON object", `1`: "context must be a JSON object", `{} {}`: "context must be a JSON object", "{\"a\":\"\xff\"}": "context must be UTF-8",
		nested(11, ""): "context must not be nested deeper than 10 levels", nested(10, "1"): "must not be nested deeper",
		`{"a":{"b":[0,{"c":"\u0000"}]}}`: "context.a.b[1].c contains the character NUL", `{"a":[{},{"` + strings.Repeat("k", MaxStringLength+1) + `":1}]}`: "context.a[1] has a key",
		`{"a":{"` + strings.Repeat("k", 50) + `":1e400}}`:          "context.a." + strings.Repeat("k", 40) + "… is out of range",
		`{` + strings.Repeat(`"a":1,`, MaxContextItems) + `"b":1}`: "context must have at most 1000 keys", `{"b":1,"a":[` + strings.Repeat("1,", MaxContextItems) + `1]}`: "context.a must have at most 1000 elements",
		`{"a":"` + strings.Repeat(`\u00e9`, MaxStringLength+1) + `"}`: "context.a must have at most 10000 characters", `{` + strings.Repeat(" ", MaxContextBytes) + `}`: "at most 1048576 bytes",
	} {
		require.ErrorContains(t, CheckContext(json.RawMessage(wrong)), want, "%.60s", wrong)
	}
	require.NoError(t, CheckValue("data", json.RawMessage(`"text"`)))
	require.ErrorContains(t, CheckValue("data", json.RawMessage(`[1`)), "data must be JSON")
	require.ErrorContains(t, CheckValue("data", nil), "data must be JSON")
}

func BenchmarkCheckContext(b *testing.B)     { perfguard.Benchmark(b, contextCases()) }
func TestCheckContextAllocates(t *testing.T) { perfguard.Allocations(t, contextCases()) }

func contextCases() []perfguard.Case {
	return []perfguard.Case{{Name: "small", Allocs: 0, Prepare: func(testing.TB) func() error {
		context := json.RawMessage(`{"even_number":2,"run":"dzkq1","task":12345}`)
		return func() error { return CheckContext(context) }
	}}}
}
