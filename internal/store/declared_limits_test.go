package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// declare registers a version of a template with the limit of its step, a mapping or "".
func declare(t testing.TB, s *store.Store, name, version, limit string) (kept []string) {
	if limit != "" {
		limit = ", limit: " + limit
	}
	parsed, _, err := template.Parse("x.yaml", fmt.Appendf(nil, "name: %s\nnamespace_name: limited\nversion: %s\nsteps:\n  - {name: call, handler: {callable: call}%s}\n", name, version, limit))
	require.NoError(t, err)
	done, err := s.RegisterTemplates(t.Context(), store.Registrant{ID: "w1"}, []*workflow.Template{parsed})
	require.NoError(t, err)
	require.Empty(t, done.Refused)
	return done.Limits
}

// inForce is the limit of the only callable; nil: there is none.
func inForce(t testing.TB, s *store.Store) *store.LimitState {
	for more := true; more; {
		var err error
		_, _, more, err = s.FinishLimits(t.Context())
		require.NoError(t, err)
	}
	list, err := s.Limits(t.Context(), "limited", 10)
	require.NoError(t, err)
	if len(list) == 0 {
		return nil
	}
	require.Len(t, list, 1)
	return &list[0]
}

// TestTemplatesDeclareLimits: the highest version counts, whatever is registered later, and an
// operator's limit before all; what is not in force is said.
func TestTemplatesDeclareLimits(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	require.Empty(t, declare(t, s, "a", "1.0.0", "{key_path: [tenant, id], max_running: 2, weights: {big: 3}, beyond: drop}"))
	l := inForce(t, s)
	require.Equal(t, limitrule.Rule{KeyPath: tenant, MaxRunning: new(2), Burst: 1, Weights: map[string]float64{"big": 3}, Beyond: limitrule.Drop}, l.Rule)
	require.Equal(t, []string{"limited/a:1.0.0", "w1"}, []string{l.DeclaredBy, l.ChangedBy})
	changed := l.ChangedAt
	require.Empty(t, declare(t, s, "a", "1.0.0", "{key_path: [tenant, id], max_running: 2, weights: {big: 3}, beyond: drop}"))
	require.Equal(t, changed, inForce(t, s).ChangedAt, "nothing has changed")

	require.Empty(t, declare(t, s, "a", "1.10.0", "{key_path: [tenant, id], max_running: 5}"))
	require.Equal(t, 5, *inForce(t, s).MaxRunning)
	require.Empty(t, declare(t, s, "a", "1.9.0", "{key_path: [tenant, id], max_running: 9}"))
	require.Equal(t, 5, *inForce(t, s).MaxRunning, "of the highest version")

	require.Contains(t, declare(t, s, "b", "1.0.0", "{key_path: [tenant, id], max_running: 1}")[0], "limited/a has set another one")
	require.Empty(t, declare(t, s, "c", "1.0.0", "{key_path: [tenant, id], max_running: 5}"), "the same one")
	require.Contains(t, declare(t, s, "a", "1.11.0", "{key_tag: 'tenant:', max_running: 5}")[0], "another key")
	require.Equal(t, "limited/a:1.10.0", inForce(t, s).DeclaredBy)
	require.Empty(t, declare(t, s, "a", "1.12.0", ""))
	require.Nil(t, inForce(t, s), "it is declared no more")

	p := plan(t, s, limitedYAML)
	setLimit(t, s, p, limitrule.Rule{MaxRunning: new(7)})
	require.Contains(t, declare(t, s, "a", "2.0.0", "{max_running: 5}")[0], "an operator has set another one")
	require.Equal(t, 7, *inForce(t, s).MaxRunning)
	require.Empty(t, declare(t, s, "a", "2.1.0", ""))
	require.Equal(t, 7, *inForce(t, s).MaxRunning, "it is the operator's")
	_, err := s.DeleteLimit(t.Context(), "limited", p.Steps[0].Handler, "ana", "why")
	require.NoError(t, err)
	require.Empty(t, declare(t, s, "a", "2.2.0", "{per_second: 0.5, burst: 3}"))
	require.Equal(t, "limited/a:2.2.0", inForce(t, s).DeclaredBy)
	setLimit(t, s, p, limitrule.Rule{MaxRunning: new(7)})
	require.Empty(t, inForce(t, s).DeclaredBy, "an operator has taken it over")
}

// TestTaskTypesDeclareLimits: a limit goes with its type.
func TestTaskTypesDeclareLimits(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	parsed, _, err := template.Parse("x.yaml", []byte("name: mail\nnamespace_name: limited\nversion: 1.0.0\nsteps:\n  - {name: mail, handler: {callable: call}, limit: {max_running: 4}}\n"))
	require.NoError(t, err)
	by := store.OperatorAction{Actor: "ana", Reason: "why", Action: "register_task_type"}
	_, _, err = s.PutTaskType(t.Context(), parsed, store.Registrant{ID: "ana"}, by)
	require.NoError(t, err)
	require.Equal(t, 4, *inForce(t, s).MaxRunning)
	_, _, err = s.DeleteTaskType(t.Context(), "limited", "mail", by)
	require.NoError(t, err)
	require.Nil(t, inForce(t, s))
}
