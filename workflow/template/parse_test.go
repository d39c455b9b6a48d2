package template

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/admission"
	"github.com/tasker-go/tasker/internal/schema"
	"github.com/tasker-go/tasker/workflow"
)

const templateHead = "name: n\nnamespace_name: ns\nversion: 1.0.0\n"

func mustParse(t testing.TB, src string) *workflow.Template {
	t.Helper()
	template, _, err := Parse("t.yaml", []byte(src))
	require.NoError(t, err)
	return template
}

func TestLiberalReading(t *testing.T) {
	src, err := os.ReadFile("testdata/good/liberal.yaml")
	require.NoError(t, err)
	got := mustParse(t, string(src))

	require.Equal(t, "2024", got.Name)
	require.Equal(t, "1.10", got.Version)
	require.Equal(t, map[string]any{"documentation_url": nil, "1": "one"}, got.Metadata)
	require.Equal(t, &workflow.SystemDependencies{Primary: "default"}, got.SystemDependencies)
	require.Nil(t, got.Lifecycle)
	require.JSONEq(t, `{"type":"object","required":null,"properties":{"order_id":{"type":"integer","description":null}}}`, string(got.InputSchema))

	start, choose, left, join := got.Steps[0], got.Steps[1], got.Steps[2], got.Steps[3]
	require.Equal(t, "Shop::Orders::Handler", start.Handler.Callable)
	require.Equal(t, map[string]any{"rate": json.Number("1.0"), "big": json.Number("9007199254740993"), "article": "00417", "nothing": nil}, start.Handler.Initialization)
	require.Equal(t, workflow.RetryPolicy{Retryable: true, MaxAttempts: 5, Backoff: workflow.BackoffNone}, start.Retry)
	require.Equal(t, workflow.KindDecision, choose.Kind)
	require.Nil(t, choose.Handler.Initialization)
	require.Equal(t, workflow.RetryPolicy{MaxAttempts: 1, Backoff: workflow.BackoffExponential}, choose.Retry)
	require.Equal(t, "left", left.Handler.Method)
	require.Equal(t, []string{"choose"}, left.Dependencies)
	require.Equal(t, defaultRetry(), left.Retry)
	require.Equal(t, workflow.KindDeferredConvergence, join.Kind)
	require.Equal(t, workflow.RetryPolicy{Retryable: true, MaxAttempts: 3, Backoff: workflow.BackoffList, DelaysMS: []int64{500, 2000}}, join.Retry)

	inTest := got.Resolve("test").Steps
	require.Equal(t, true, inTest[3].Handler.Initialization["fast"])
	require.Equal(t, workflow.RetryPolicy{Retryable: true, MaxAttempts: 1, Backoff: workflow.BackoffExponential}, inTest[0].Retry)
}

func TestRetryDefaults(t *testing.T) {
	policy := func(retryable bool, attempts int, backoff workflow.BackoffStrategy, base, most int64, delays []int64) workflow.RetryPolicy {
		return workflow.RetryPolicy{Retryable: retryable, MaxAttempts: attempts, Backoff: backoff, BaseMS: base, MaxMS: most, DelaysMS: delays}
	}
	tests := []struct {
		block string
		want  workflow.RetryPolicy
	}{
		{"", policy(true, 3, workflow.BackoffExponential, 1000, 30000, nil)},
		{"retry:", policy(true, 3, workflow.BackoffExponential, 1000, 30000, nil)},
		{"retry: {}", policy(true, 3, workflow.BackoffExponential, 0, 0, nil)},
		{"retry: {max_attempts: }", policy(true, 3, workflow.BackoffExponential, 0, 0, nil)},
		{"retry: {max_attempts: 0}", policy(true, 1, workflow.BackoffExponential, 0, 0, nil)},
		{"retry: {max_attempts: 7.0, retryable: false}", policy(false, 7, workflow.BackoffExponential, 0, 0, nil)},
		{"retry: {backoff: linear, backoff_base_ms: 0x200}", policy(true, 3, workflow.BackoffLinear, 512, 0, nil)},
		{"retry: {backoff_delays_ms: [100, 200]}", policy(true, 3, workflow.BackoffList, 0, 0, []int64{100, 200})},
		{"retry: {backoff: fibonacci, limit: 9}", policy(true, 3, workflow.BackoffFibonacci, 0, 0, nil)},
	}
	for _, test := range tests {
		t.Run(test.block, func(t *testing.T) {
			got := mustParse(t, templateHead+"steps:\n  - name: a\n    handler: {callable: x}\n    "+test.block+"\n")
			require.Equal(t, test.want, got.Steps[0].Retry)
		})
	}
}

func TestVersionIsTheTextOfTheFile(t *testing.T) {
	for text, want := range map[string]string{
		"1.0": "1.0", "1.10": "1.10", "1": "1", `"1.0.0"`: "1.0.0", "1.0.0": "1.0.0", "2024-01-01": "2024-01-01",
		"1e3": "1e3", "010": "010", "'2.0'": "2.0", "!!str 3.0": "3.0", "1_0": "1_0",
	} {
		got := mustParse(t, "name: n\nnamespace_name: s\nversion: "+text+"\nsteps: [{name: a, handler: {callable: x}}]\n")
		require.Equal(t, want, got.Version, text)
	}
}

func TestLineEndsAndByteOrderMark(t *testing.T) {
	src := "\xef\xbb\xbf" + strings.ReplaceAll(templateHead+"description: |\n  two\n  lines\nsteps:\n  - name: a\n    handler: {callable: x}\n    bogus: 1\n", "\n", "\r\n")
	template, problems, err := Parse("t.yaml", []byte(src))
	require.NoError(t, err)
	require.Equal(t, "two\nlines\n", template.Description)
	require.Equal(t, `t.yaml:10:5: warning: the unknown key "bogus" is ignored [UNKNOWN_KEY]`, problems.String())
}

// Content behind an alias is read once per use but reported once.
func TestProblemsBehindAliasesAreReportedOnce(t *testing.T) {
	src := templateHead + "x-h: &h {callable: x, bogus: 1}\nsteps:\n  - {name: a, handler: *h}\n  - {name: b, dependencies: [a], handler: *h}\n"
	_, problems, err := Parse("t.yaml", []byte(src))
	require.NoError(t, err)
	require.Equal(t, `t.yaml:4:23: warning: the unknown key "bogus" is ignored [UNKNOWN_KEY]`, problems.String())
}

func TestProblemsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(templateHead + "steps:\n")
	for i := range 3 * maxProblems {
		fmt.Fprintf(&b, "  - {name: s%d, handler: {callable: x}, bogus: 1}\n", i)
	}
	_, problems, err := Parse("t.yaml", []byte(b.String()))
	require.NoError(t, err, "warnings alone never become an error")
	require.Len(t, problems, maxProblems+1)
	require.Contains(t, problems[maxProblems].Message, "more problems")

	b.WriteString("  - {name: last}\n")
	_, _, err = Parse("t.yaml", []byte(b.String()))
	require.Error(t, err, "an error beyond the limit is not lost")
}

func TestTenThousandSteps(t *testing.T) {
	file := func(n int) []byte {
		var b strings.Builder
		b.WriteString(templateHead + "steps:\n")
		for i := range n {
			fmt.Fprintf(&b, "- name: s%d\n  handler: {callable: x}\n  dependencies: [s%d]\n", i, max(i-1, 0))
		}
		return []byte(strings.Replace(b.String(), "  dependencies: [s0]\n", "", 1))
	}
	template, problems, err := Parse("t.yaml", file(workflow.MaxSteps))
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Len(t, template.Steps, workflow.MaxSteps)

	_, problems, err = Parse("t.yaml", file(workflow.MaxSteps+1))
	require.Error(t, err)
	require.Contains(t, problems.String(), "t.yaml:30004:3: error: the template has 10001 steps; up to 10000 are allowed [TOO_LARGE]")
}

// Inputs that make a YAML reader work far more than their size suggests are rejected or
// read, but quickly.
func TestHostileInputs(t *testing.T) {
	const n = 20_000
	inputs := map[string]string{
		"too long":           strings.Repeat("# comment\n", maxTemplateBytes/10+1),
		"brackets":           strings.Repeat("[", n),
		"braces":             strings.Repeat("{a: ", n),
		"dashes":             strings.Repeat("- ", n) + "a",
		"questions":          strings.Repeat("? ", n) + "a",
		"tags":               strings.Repeat("!!str ", n) + "a",
		"anchors":            "a: " + strings.Repeat("&a ", n) + "a",
		"colons in brackets": "[" + strings.Repeat("a: ", n),
		"questions in flow":  "[" + strings.Repeat("? ", n),
		"one mapping":        strings.Repeat("a: b\n", n),
		"mapping in flow":    "{" + strings.Repeat("a: b,", n) + "}",
		"block in flow":      "[\n" + strings.Repeat("a: b\n", n) + "]",
		"long key":           strings.Repeat("k", n) + ":\n" + strings.Repeat("  - a\n", n),
		"deep indentation":   deepIndentation(1_000),
		"documents":          strings.Repeat("---\n", n),
		"aliases":            "a: &a [" + strings.Repeat("x,", 1_000) + "]\nb: [" + strings.Repeat("*a,", n) + "]",
		"merges":             "a: &a {" + manyKeys(1_000) + "}\nb:\n" + strings.Repeat("- {<<: *a}\n", n),
		"long text aliased":  "a: &a " + strings.Repeat("x", n) + "\nb: [" + strings.Repeat("*a,", n) + "]",
		"quotes":             strings.Repeat("'", n),
		"literals":           strings.Repeat("- |\n  a\n", n),
	}
	for name, src := range inputs {
		t.Run(name, func(t *testing.T) {
			started := time.Now()
			template, problems, err := Parse("t.yaml", []byte(src))
			requireConsistent(t, template, problems, err)
			require.Error(t, err)
			require.Less(t, time.Since(started), 2*time.Minute, "seconds, and half a minute on a busy machine")
		})
	}
}

func deepIndentation(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: v,", i)
	}
	return b.String()
}

func TestStepKindText(t *testing.T) {
	for k := workflow.KindStandard; k <= workflow.KindBatchWorker; k++ {
		text, err := k.MarshalText()
		require.NoError(t, err)
		require.Equal(t, k.String(), string(text))
		var back workflow.StepKind
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, k, back)
	}
	var k workflow.StepKind
	require.NoError(t, k.UnmarshalText([]byte("decision_point")))
	require.Equal(t, workflow.KindDecision, k)
	require.Error(t, k.UnmarshalText([]byte("standart")))
	_, err := workflow.StepKind(0).MarshalText()
	require.Error(t, err)
	require.Equal(t, "unknown workflow.StepKind 99", workflow.StepKind(99).String())
}

func policyOf(t *testing.T, keys string) *workflow.Template {
	t.Helper()
	template, problems, err := Parse("t.yaml", []byte("name: n\nnamespace_name: ns\nversion: '1'\n"+keys+
		"\nsteps:\n  - {name: a, handler: {callable: h}}\n"))
	require.NoError(t, err, "%s", problems)
	return template
}

func TestIdentityOfTemplates(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]*workflow.IdentityPolicy{
		"":                                      nil,
		"identity_strategy: STRICT":             nil,
		"identity: {}":                          nil,
		"identity_strategy: always_unique":      {Strategy: workflow.IdentityAlwaysUnique},
		"identity_strategy: CALLER_PROVIDED":    {Strategy: workflow.IdentityCallerProvided},
		"identity: {strategy: CALLER_PROVIDED}": {Strategy: workflow.IdentityCallerProvided},
		"identity_strategy: caller_provided\nidentity: {strategy: caller_provided, key_lifetime: 7d}": {Strategy: workflow.IdentityCallerProvided, KeyLifetime: "7d"},
		"identity: {window: 24h}":                                  {Window: "24h"},
		"identity: {strategy: strict, window: 90m}":                {Strategy: workflow.IdentityStrict, Window: "90m"},
		"identity: {calendar: day}":                                {Calendar: workflow.CalendarDay},
		"identity: {calendar: week, time_zone: America/Sao_Paulo}": {Calendar: workflow.CalendarWeek, TimeZone: "America/Sao_Paulo"},
	} {
		require.Equal(t, want, policyOf(t, keys).Identity, keys)
	}
}

func TestPriorityOfTemplates(t *testing.T) {
	t.Parallel()
	require.Nil(t, policyOf(t, "").Priority)
	require.Equal(t, 7, *policyOf(t, "priority: 7").Priority)
	require.Equal(t, 80, *policyOf(t, "priority_level: 1").Priority)
}

func TestSubmissionsOfTemplates(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/good/submission.yaml")
	require.NoError(t, err)
	template, _, err := Parse("f.yaml", src)
	require.NoError(t, err)
	require.JSONEq(t, `{"throttle":{"max":100,"period_ms":60000,"burst":10,"key_path":["customer","id"],"beyond":"delay"},
		"debounce":{"quiet_ms":5000,"max_wait_ms":60000,"key_tag":"document:","keep":"first"}}`, string(template.Submission))
	requireRoundTrip(t, template)
	rules, err := admission.Parse(template.Submission)
	require.NoError(t, err)
	require.Equal(t, 10, rules.Throttle.Burst)
	for raw, want := range map[string]string{`{}`: "give a throttle or a debounce", `{"throttle": 1}`: "cannot unmarshal", `{"debounce": {"quiet_ms": 0}}`: "quiet_ms must be"} {
		_, err := admission.Parse(json.RawMessage(raw))
		require.ErrorContains(t, err, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, dir := range []string{"testdata/good", "testdata/bad"} {
		entries, err := os.ReadDir(dir)
		require.NoError(f, err)
		for _, e := range entries {
			src, err := os.ReadFile(dir + "/" + e.Name())
			require.NoError(f, err)
			f.Add(src)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		template, problems, err := Parse("f.yaml", src)
		requireConsistent(t, template, problems, err)
		if err == nil {
			requireRoundTrip(t, template)
			_, err := workflow.Compile(template.Resolve(""))
			require.NoError(t, err)
			input, err := schema.Read(template.InputSchema)
			require.NoError(t, err)
			_, err = input.Validate(t.Context(), schema.Budget{Steps: 1000, Time: time.Second}, map[string]any{"a": "b"})
			require.NoError(t, err)
		}
	})
}
