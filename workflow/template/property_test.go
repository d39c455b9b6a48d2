package template

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/priorities"
	"github.com/tasker-go/tasker/workflow"
)

// genTemplate draws templates as Parse makes them: valid, with the
// defaults filled in.
func genTemplate() *rapid.Generator[*workflow.Template] {
	return rapid.Custom(func(t *rapid.T) *workflow.Template {
		template := &workflow.Template{
			Name:         rapid.StringMatching(`[a-z][a-z0-9_]{0,20}`).Draw(t, "name"),
			Namespace:    rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,28}`).Draw(t, "namespace"),
			Version:      rapid.SampledFrom([]string{"1.0.0", "1.0", "2", "0x10", "1e3", "true", "null", "1_0"}).Draw(t, "version"),
			Description:  genText().Draw(t, "description"),
			Metadata:     genObject().Draw(t, "metadata"),
			InputSchema:  genSchema().Draw(t, "input_schema"),
			Environments: map[string]workflow.EnvironmentOverride{},
			OnFailure:    rapid.SampledFrom([]workflow.OnFailure{"", workflow.OnFailureFail, workflow.OnFailureBlock}).Draw(t, "on_failure"),
		}
		template.Identity = rapid.SampledFrom([]*workflow.IdentityPolicy{
			nil, {Strategy: workflow.IdentityAlwaysUnique}, {Strategy: workflow.IdentityCallerProvided, KeyLifetime: "7d"}, {Window: "90m"},
			{Strategy: workflow.IdentityStrict, Calendar: workflow.CalendarDay, TimeZone: "Europe/Berlin"}, {Calendar: workflow.CalendarWeek, KeyLifetime: "1h30m"},
		}).Draw(t, "identity")
		template.Submission = rapid.SampledFrom([]json.RawMessage{nil, json.RawMessage(`{"throttle":{"max":2,"period_ms":60000,"key_path":["a","b.c"]}}`),
			json.RawMessage(`{"debounce":{"quiet_ms":5,"key_tag":"t:"}}`)}).Draw(t, "submission")
		if rapid.Bool().Draw(t, "urgent") {
			priority := rapid.IntRange(priorities.Min, priorities.Max).Draw(t, "priority")
			template.Priority = &priority
		}
		if rapid.Bool().Draw(t, "system") {
			template.SystemDependencies = &workflow.SystemDependencies{Primary: "db", Secondary: genTexts().Draw(t, "secondary")}
		}
		if rapid.Bool().Draw(t, "lifecycle") {
			template.Lifecycle = &workflow.Lifecycle{MaxDurationMinutes: rapid.IntRange(0, 40_000).Draw(t, "minutes"), AutoDLQOnTimeout: true, StalenessAction: "dlq"}
		}
		for range rapid.IntRange(0, 2).Draw(t, "events") {
			template.DomainEvents = append(template.DomainEvents, workflow.DomainEventDeclaration{Name: "a.b", Description: genText().Draw(t, "text"), Schema: genSchema().Draw(t, "schema")})
		}
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			template.Steps = append(template.Steps, genStep(t, i))
		}
		for _, env := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"test", "development", "production"}), 0, 3, rapid.ID).Draw(t, "environments") {
			template.Environments[env] = genOverrides(t, len(template.Steps))
		}
		if len(template.Environments) == 0 {
			template.Environments = nil
		}
		return template
	})
}

func stepName(i int) string { return fmt.Sprintf("step %d/ä", i) }

func genStep(t *rapid.T, i int) workflow.StepTemplate {
	s := workflow.StepTemplate{
		Name:           stepName(i),
		Description:    genText().Draw(t, "description"),
		Kind:           rapid.SampledFrom([]workflow.StepKind{workflow.KindStandard, workflow.KindBatchable, workflow.KindBatchWorker}).Draw(t, "kind"),
		Handler:        workflow.HandlerReference{Callable: "Shop::Handler", Method: rapid.SampledFrom([]string{"", "run"}).Draw(t, "method"), Initialization: genObject().Draw(t, "initialization")},
		Retry:          genRetry(t),
		TimeoutSeconds: rapid.IntRange(0, 90_000).Draw(t, "timeout"),
		ResultSchema:   genSchema().Draw(t, "result_schema"),
		Tags:           genTexts().Draw(t, "tags"),
		Join:           rapid.SampledFrom([]workflow.Join{"", workflow.JoinAll, workflow.JoinExisting}).Draw(t, "join"),
	}
	for parent := range i {
		if rapid.Bool().Draw(t, "depends") {
			s.Dependencies = append(s.Dependencies, stepName(parent))
		}
	}
	if len(s.Dependencies) > 0 && s.Kind == workflow.KindStandard {
		s.Kind = rapid.SampledFrom([]workflow.StepKind{workflow.KindStandard, workflow.KindDecision}).Draw(t, "decision")
	}
	if rapid.Bool().Draw(t, "publishes") {
		s.PublishesEvents = []workflow.EventPublication{{Name: "order.created", Condition: "always", DeliveryMode: "fast", Schema: genSchema().Draw(t, "schema")}}
	}
	if s.Kind == workflow.KindBatchWorker {
		s.Batch = &workflow.BatchSettings{BatchSize: 10, Parallelism: 2, CursorField: "id", WorkerTemplate: s.Name, FailureStrategy: "isolate"}
	}
	if v := genValue(2).Draw(t, "composition"); v != nil {
		s.Composition, _ = json.Marshal(v)
	}
	return s
}

func genRetry(t *rapid.T) workflow.RetryPolicy {
	p := workflow.RetryPolicy{
		Retryable:   rapid.Bool().Draw(t, "retryable"),
		MaxAttempts: rapid.IntRange(1, 200).Draw(t, "max_attempts"),
		Backoff: rapid.SampledFrom([]workflow.BackoffStrategy{workflow.BackoffExponential, workflow.BackoffLinear, workflow.BackoffFixed,
			workflow.BackoffFibonacci, workflow.BackoffList, workflow.BackoffNone}).Draw(t, "backoff"),
		BaseMS: rapid.Int64Range(0, 5_000_000).Draw(t, "base"),
		MaxMS:  rapid.Int64Range(0, 5_000_000).Draw(t, "max"),
	}
	if p.Backoff == workflow.BackoffList {
		p.DelaysMS = rapid.SliceOfN(rapid.Int64Range(0, 5_000_000), 1, 5).Draw(t, "delays")
	}
	return p
}

func genOverrides(t *rapid.T, steps int) workflow.EnvironmentOverride {
	var env workflow.EnvironmentOverride
	for range rapid.IntRange(0, 4).Draw(t, "overrides") {
		o := workflow.StepOverride{
			Name:           workflow.OverrideAll,
			Initialization: genObject().Draw(t, "initialization"),
			TimeoutSeconds: rapid.IntRange(0, 100).Draw(t, "timeout"),
		}
		if rapid.Bool().Draw(t, "one") {
			o.Name = stepName(rapid.IntRange(0, steps-1).Draw(t, "step"))
		}
		if rapid.Bool().Draw(t, "retry") {
			retry := genRetry(t)
			o.Retry = &retry
		}
		env.Steps = append(env.Steps, o)
	}
	return env
}

// genText favours texts that are hard to quote.
func genText() *rapid.Generator[string] {
	hard := rapid.SampledFrom([]string{"", " ", "a: b", "#", "- x", "*a", "&a", "yes", "null", "1.0", "~", "\t", "a\nb\n", "'", "\"", "\\", "<b>&", "😀", "{", "%", "\u2028", "é"})
	plain := rapid.StringMatching(`[ -~äöü]{0,30}`)
	return rapid.OneOf(hard, plain)
}

func genTexts() *rapid.Generator[[]string] {
	return rapid.Custom(func(t *rapid.T) []string {
		return rapid.SliceOfN(rapid.StringMatching(`[a-z:0-9]{1,8}`), 1, 3).Draw(t, "texts")
	})
}

// genValue draws free-form values in canonical form.
func genValue(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 6
		if depth == 0 {
			kinds = 4
		}
		switch rapid.IntRange(0, kinds).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return genText().Draw(t, "text")
		case 3:
			return jsonscan.Number(json.Number(fmt.Sprint(rapid.Int64().Draw(t, "int"))))
		case 4:
			f := rapid.OneOf(rapid.Float64Range(-1e300, 1e300), rapid.SampledFrom([]float64{1, 0.1, 1e20, 1e21, 2.5e-7, 1500})).Draw(t, "float")
			return jsonscan.Float(f)
		case 5:
			list := []any{}
			for range rapid.IntRange(0, 3).Draw(t, "length") {
				list = append(list, genValue(depth-1).Draw(t, "item"))
			}
			return list
		}
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			object[genText().Draw(t, "key")] = genValue(depth-1).Draw(t, "value")
		}
		return object
	})
}

func genObject() *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		var object map[string]any
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			if object == nil {
				object = map[string]any{}
			}
			object[rapid.StringMatching(`[a-z_]{1,10}`).Draw(t, "key")] = genValue(2).Draw(t, "value")
		}
		return object
	})
}

func genSchema() *rapid.Generator[json.RawMessage] {
	return rapid.SampledFrom([]json.RawMessage{nil,
		json.RawMessage(`{"type":"object"}`),
		json.RawMessage(`{"properties":{"a":{"description":"a \u003c b","minimum":1.5,"type":"number"}},"required":["a"],"type":"object"}`),
	})
}

func TestTemplateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { requireRoundTrip(t, genTemplate().Draw(t, "template")) })
}

// The changes of a jsonb column (key order, spaces, numbers without exponents) change neither
// the content of a template nor its hash.
func TestRawPartsAreCanonical(t *testing.T) {
	stored := `{"name":"n","namespace_name":"s","version":"1","metadata":{"b": 1e20,"a":1500.0},
		"input_schema": {"type": "object", "b": 1.50, "a": 100000000000000000000},
		"steps":[{"name":"a","type":"decision_point","handler":{"callable":"x","initialization":{"n":9007199254740993}},"retry":{"retryable":true,"max_attempts":1}}]}`
	var template workflow.Template
	require.NoError(t, json.Unmarshal([]byte(stored), &template))
	require.JSONEq(t, `{"a":1e+20,"b":1.5,"type":"object"}`, string(template.InputSchema))
	require.Equal(t, `{"a":1e+20,"b":1.5,"type":"object"}`, string(template.InputSchema))
	require.Equal(t, map[string]any{"a": json.Number("1500.0"), "b": json.Number("1e+20")}, template.Metadata)
	require.Equal(t, json.Number("9007199254740993"), template.Steps[0].Handler.Initialization["n"])
	require.Equal(t, workflow.KindDecision, template.Steps[0].Kind)
}

// A number of a template keeps its digits, even where no double carries them. Numbers that
// are too long for that, or nearest to 0, become the nearest double.
func TestNumbersOfTemplatesKeepTheirDigits(t *testing.T) {
	for text, want := range map[string]json.Number{
		"12": "12", "-9223372036854775808": "-9223372036854775808", "18446744073709551615": "18446744073709551615", "100000000000000000000": "1e+20",
		"1.50": "1.5", "5.960464477539063e-8": "5.960464477539063e-08", "1e2": "100.0", "-0.0": "0.0", "0.10000000000000001": "0.1",
		"1.000000000000000001": "1.000000000000000001e+0", "-123456789.01234567890": "-1.234567890123456789e+8", "18446744073709551617": "1.8446744073709551617e+19",
		"1e-400": "0.0", "-12345678901234567e-400": "0.0", "1." + strings.Repeat("0", 20_000) + "1": "1.0",
	} {
		got := jsonscan.Number(json.Number(text))
		require.Equal(t, want, got, "%.40s", text)
		require.Equal(t, want, jsonscan.Number(got), "%.40s, read again", text)
	}
	template := mustParse(t, templateHead+"steps: [{name: a, handler: {callable: x, initialization: {fine: 1.000000000000000001, gone: 1e-400, endless: 1e-20000}}}]\n")
	require.Equal(t, map[string]any{"fine": json.Number("1.000000000000000001e+0"), "gone": json.Number("0.0"), "endless": "1e-20000"},
		template.Steps[0].Handler.Initialization)
}

func TestResolveNeverChangesTheTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template := genTemplate().Draw(t, "template")
		before := template.ContentHash()
		resolved := template.Resolve(rapid.SampledFrom([]string{"", "test", "production"}).Draw(t, "environment"))
		require.Empty(t, resolved.Environments)
		require.Equal(t, before, template.ContentHash())
	})
}
