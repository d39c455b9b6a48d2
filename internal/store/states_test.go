package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// TestStatesHaveOneNameInGoAndSQL: the views name the state of a step or task as the API
// does, for every status and state there is.
func TestStatesHaveOneNameInGoAndSQL(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	ended := 0
	for s := workflow.Status(0); !strings.HasPrefix(s.String(), "unknown"); s++ {
		if !s.Ended() {
			continue
		}
		ended++
		require.Equal(t, store.EndedState(s).String(), db.QueryString(t, `select coalesce(tasker.step_state_name($1, null, null, null), 'no name')`, int(s)), "status %v", s)
	}
	require.Positive(t, ended)
	for _, s := range workflow.TaskStates() {
		require.Equal(t, s.String(), db.QueryString(t, `select tasker.task_state_name($1)`, int(s)))
	}
}
