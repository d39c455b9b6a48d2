package template

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

const overridden = templateHead + `
steps:
  - name: a
    handler: {callable: x, initialization: {keep: 1, change: {old: 1}, both: 1}}
    timeout_seconds: 30
    retry: {max_attempts: 9, backoff: linear, backoff_base_ms: 500, max_backoff_ms: 5000, retryable: false}
  - name: b
    dependencies: [a]
    handler: {callable: x}
environments:
  test:
    steps:
      - name: a
        handler: {initialization: {change: {new: 2}, both: 2, added: }}
        retry: {max_attempts: 2}
      - name: ALL
        handler: {initialization: {everywhere: true, both: 3}}
        timeout_seconds: 5
      - name: b
        timeout_seconds: 6
        handler:
      - name: c
        timeout_seconds: 7
`

func TestResolve(t *testing.T) {
	template := mustParse(t, overridden)
	require.Len(t, template.Environments, 1)

	test := template.Resolve("test")
	a, b := test.Steps[0], test.Steps[1]
	require.Equal(t, map[string]any{
		"keep": json.Number("1"), "change": map[string]any{"new": json.Number("2")}, // one level deep: replaced, not merged
		"both": json.Number("3"), "added": nil, "everywhere": true, // later entries win
	}, a.Handler.Initialization)
	require.Equal(t, "x", a.Handler.Callable)
	require.Equal(t, 5, a.TimeoutSeconds)
	require.Equal(t, workflow.RetryPolicy{Retryable: true, MaxAttempts: 2, Backoff: workflow.BackoffExponential}, a.Retry, "the whole block is replaced")
	require.Equal(t, 6, b.TimeoutSeconds)
	require.Equal(t, defaultRetry(), b.Retry)
	require.Nil(t, test.Environments)

	for _, other := range []string{"", "production"} {
		same := template.Resolve(other)
		require.Nil(t, same.Environments)
		require.Equal(t, template.Steps, same.Steps)
	}
	require.NotEqual(t, test.ContentHash(), template.Resolve("").ContentHash())
}
