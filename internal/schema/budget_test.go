package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/workflow/template"
)

// doubling is a schema each level of a value doubles the work of, and nested is a small value for
// it: 2^depth alternatives fail.
const doubling = `{"type":"object","anyOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}}}]}`

func nested(depth int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth))
}

// read is a schema as one of a template that was registered before.
func read(t testing.TB, text string) *schema.Schema {
	t.Helper()
	s, err := schema.Read(json.RawMessage(text))
	require.NoError(t, err)
	return s
}

func TestCheckStopsAtItsBudget(t *testing.T) {
	t.Parallel()
	for _, text := range []string{doubling, strings.ReplaceAll(doubling, "anyOf", "oneOf"),
		`{"not":` + doubling[:len(doubling)-1] + `,"x":1}}`,
		strings.ReplaceAll(strings.ReplaceAll(doubling, `"$ref":"#"`, `"$dynamicRef":"#n"`), `{"type"`, `{"$dynamicAnchor":"n","type"`),
		`{"$schema":"http://json-schema.org/draft-07/schema#",` + doubling[1:],
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,` + strings.ReplaceAll(doubling, `"$ref"`, `"$recursiveRef"`)[1:],
		`{"$id":"https://example.com/s",` + doubling[1:],
	} {
		s := read(t, text)
		_, err := s.Validate(t.Context(), schema.Budget{Steps: 50_000, Time: time.Minute}, nested(60))
		var over *schema.BudgetError
		require.ErrorAs(t, err, &over, text)
		require.Equal(t, 50_000, over.Steps)
		found, err := s.Validate(t.Context(), schema.Budget{Steps: 50_000, Time: time.Minute}, nested(2))
		require.NoError(t, err, "the instance is as good as before")
		require.Equal(t, strings.HasPrefix(text, `{"not"`), len(found) == 0, text)
	}
}

// What a value fits is checked as often as what it does not.
func TestCheckOfFittingValuesStops(t *testing.T) {
	t.Parallel()
	s := read(t, strings.ReplaceAll(doubling, "anyOf", "allOf"))
	_, err := s.Validate(t.Context(), schema.Budget{Steps: 50_000, Time: time.Minute}, json.RawMessage(strings.Replace(string(nested(60)), "1", "{}", 1)))
	var over *schema.BudgetError
	require.ErrorAs(t, err, &over)
}

func TestCheckEndsWithItsContextAndTime(t *testing.T) {
	t.Parallel()
	s := read(t, doubling)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := fmt.Errorf("the client has gone")
	cancel(gone)
	_, err := s.Validate(ctx, schema.Budget{Steps: 1 << 40, Time: time.Hour}, nested(60))
	require.ErrorIs(t, err, gone)
	_, err = s.Validate(t.Context(), schema.Budget{Steps: 1 << 40}, nested(60))
	var over *schema.BudgetError
	require.ErrorAs(t, err, &over)
	require.Zero(t, over.Steps)
}

// The failures of a value are built by the library: they must not take the memory that their number
// asks for.
func TestFailuresAreCut(t *testing.T) {
	t.Parallel()
	s := read(t, doubling)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := (*schema.Checker)(nil).Check(t.Context(), s, nested(99))
	runtime.ReadMemStats(&after)
	require.Error(t, err)
	t.Log("allocated", (after.TotalAlloc-before.TotalAlloc)>>20, "MiB", "held", (after.HeapAlloc)>>20)

	many := read(t, `{"type":"array","items":{"anyOf":[{"type":"string"},{"type":"object"}]}}`)
	found, err := (*schema.Checker)(nil).Check(t.Context(), many, json.RawMessage("["+strings.Repeat("1,", 200_000)+"1]"))
	require.NoError(t, err)
	require.Equal(t, []schema.Violation{{Message: "does not fit; it is too large or nested too deeply to say where"}}, found)
}

func TestLargeValuesFit(t *testing.T) {
	t.Parallel()
	for text, value := range map[string]string{
		`{"type":"array","items":{"type":"integer","minimum":0}}`:                                           "[" + strings.Repeat("1,", 100_000) + "1]",
		`{"type":"array","items":{"enum":[2,1]}}`:                                                           "[" + strings.Repeat("1,", 100_000) + "1]",
		`{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`: "[" + strings.Repeat(`{"n":1},`, 30_000) + `{"n":1}]`,
		`{"type":"object","additionalProperties":{"anyOf":[{"type":"string"},{"$ref":"#"}]}}`:               strings.Replace(string(nested(99)), "1", `"x"`, 1),
	} {
		start := time.Now()
		require.Empty(t, check(t, read(t, text), json.RawMessage(value)))
		t.Log(text, len(value), time.Since(start))
	}
}

func TestChecksShareSchemas(t *testing.T) {
	t.Parallel()
	s := read(t, doubling)
	var checks sync.WaitGroup
	for i := range 20 {
		checks.Go(func() {
			_, err := s.Validate(t.Context(), schema.Budget{Steps: 20_000, Time: time.Minute}, nested(3+i%2*60))
			if small := i%2 == 0; small != (err == nil) {
				t.Errorf("check %d: %v", i, err)
			}
		})
	}
	checks.Wait()
}

func TestLargeChecksTakeTurns(t *testing.T) {
	t.Parallel()
	var given []string
	c := schema.NewChecker(schema.CheckerConfig{Budget: schema.Budget{Steps: 1 << 40, Time: time.Hour}, AtOnce: 1, MaxWaiting: 0,
		GivenUp: func(reason string) { given = append(given, reason) }})
	s := read(t, doubling)
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		_, err := c.Check(ctx, s, nested(60))
		if err == nil {
			t.Error("it ends with its context")
		}
	})
	require.Eventually(t, func() bool { return c.Busy() == 1 }, time.Minute, time.Millisecond)
	_, err := c.Check(t.Context(), s, nested(60))
	require.ErrorIs(t, err, schema.ErrBusy)
	require.Equal(t, []string{"busy"}, given)
	require.NotEmpty(t, check(t, s, nested(1)), "small ones do not wait")
	found, err := c.Check(t.Context(), s, nested(1))
	require.NoError(t, err)
	require.Len(t, found, 1)
	cancel()
	first.Wait()
}

func TestAlternativesThatReferBackAreRefused(t *testing.T) {
	t.Parallel()
	refused := map[string]string{
		"anyOf":            doubling,
		"allOf twice":      `{"$defs":{"n":{"properties":{"x":{"$ref":"#"}}}},"allOf":[{"$ref":"#/$defs/n"},{"$ref":"#/$defs/n"}]}`,
		"below":            `{"properties":{"tree":{"$ref":"#/$defs/n"}},"$defs":{"n":{"oneOf":[{"items":{"$ref":"#/$defs/n"}},{"prefixItems":[true,{"$ref":"#/$defs/n"}]}]}}}`,
		"two levels":       `{"anyOf":[{"properties":{"a":{"properties":{"b":{"$ref":"#"}}}}},{"properties":{"a":{"additionalProperties":{"$ref":"#"}}}}]}`,
		"pattern and name": `{"properties":{"abc":{"$ref":"#"}},"patternProperties":{"^a":{"$ref":"#"}}}`,
		"contains":         `{"items":{"$ref":"#"},"contains":{"$ref":"#"}}`,
		"if and then":      `{"if":{"properties":{"a":{"$ref":"#"}}},"then":{"properties":{"a":{"$ref":"#"}}}}`,
		"through another":  `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"properties":{"x":{"$ref":"#/$defs/b"}}},{"properties":{"x":{"$ref":"#/$defs/a"}}}]},"b":{"$ref":"#/$defs/a"}}}`,
	}
	for name, text := range refused {
		for _, source := range []string{"input_schema: " + text + "\nsteps: [{name: a, handler: {callable: x}}]\n",
			"steps: [{name: a, handler: {callable: x}, result_schema: " + text + "}]\n",
			"steps: [{name: a, handler: {callable: x}, publishes_events: [{name: a.b, schema: " + text + "}]}]\n"} {
			_, _, err := template.Parse("t.yaml", []byte(head+source))
			require.ErrorContains(t, err, "each level doubles the work", name)
		}
		require.NotNil(t, read(t, text), "templates that were registered before can be used")
	}
	for name, text := range map[string]string{
		"tree":            `{"properties":{"left":{"$ref":"#"},"right":{"$ref":"#"}}}`,
		"list":            `{"properties":{"next":{"anyOf":[{"type":"null"},{"$ref":"#"}]}}}`,
		"operators":       `{"oneOf":[{"type":"string"},{"properties":{"and":{"items":{"$ref":"#"}}},"additionalProperties":false},{"properties":{"or":{"items":{"$ref":"#"}}}}]}`,
		"rest":            `{"properties":{"a":{"$ref":"#"}},"patternProperties":{"^x":{"$ref":"#"},"^y":{"$ref":"#"}},"additionalProperties":{"$ref":"#"}}`,
		"tuple":           `{"prefixItems":[{"$ref":"#"},{"$ref":"#"}],"items":{"$ref":"#"}}`,
		"then or else":    `{"if":{"required":["x"]},"then":{"properties":{"a":{"$ref":"#"}}},"else":{"properties":{"a":{"$ref":"#"}}}}`,
		"twice, no cycle": `{"anyOf":[{"properties":{"a":{"$ref":"#/$defs/n"}}},{"properties":{"a":{"$ref":"#/$defs/n"}}}],"$defs":{"n":{"type":"object"}}}`,
		"JSON":            `{"$defs":{"v":{"anyOf":[{"type":["string","number"]},{"type":"array","items":{"$ref":"#/$defs/v"}},{"type":"object","additionalProperties":{"$ref":"#/$defs/v"}}]}},"$ref":"#/$defs/v"}`,
	} {
		var value any
		require.NoError(t, json.Unmarshal([]byte(text), &value))
		_, _, faults := schema.Compile(value)
		require.Empty(t, faults, name)
	}
}
