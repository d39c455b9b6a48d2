package board

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tasker-go/tasker/internal/store/internal/plantest"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// boardColumns are the columns of the board with their types, by the catalogue.
func boardColumns(t *testing.T, db *pgtest.DB) map[string]string {
	t.Helper()
	columns := map[string]string{}
	require.NoError(t, json.Unmarshal([]byte(db.QueryString(t, `select json_object_agg(attname, format_type(atttypid, atttypmod))::text
		from pg_attribute where attrelid = 'tasker.board'::regclass and attnum > 0 and not attisdropped`)), &columns))
	return columns
}

func TestEveryColumnOfTheBoardHasAnOwner(t *testing.T) {
	t.Parallel()
	db := plantest.Open(t)
	var all []string
	for column := range boardColumns(t, db) {
		all = append(all, column)
	}
	owned := slices.Concat([]string{"task_uuid", "slot", "queue"}, columnsOfSteps, columnsOfTasks)
	require.ElementsMatch(t, all, owned, "add a new column to board/actions.go, as one of the step or of the task")
	require.Subset(t, columnsOfSteps, columnsWithZero)
}

// A step that gets its own row takes all of its columns, and leaves all of the task's.
func TestASpreadStepKeepsEverything(t *testing.T) {
	t.Parallel()
	db := plantest.Open(t)
	columns := boardColumns(t, db)
	values := map[string]string{"uuid": `gen_random_uuid()`, "timestamp with time zone": `now()`, "bigint": `7`, "integer": `7`, "smallint": `7`, "boolean": `true`,
		"text": `'t'`, "text[]": `'{t}'`, "smallint[]": `'{1}'`, "jsonb": `'{"kind":"tasks"}'`, "bytea": `'\x0100'`}
	for state, empty := range map[int][]string{1: nil, 2: {"due_at", "lease_until"}, 3: nil, 4: {"lease_until"}} {
		names, row := []string{"task_uuid", "slot", "queue"}, []string{fmt.Sprintf(`'00000000-0000-7000-8000-00000000000%d'`, state), "0", "7"}
		for _, column := range slices.Concat(columnsOfSteps, columnsOfTasks) {
			value := values[columns[column]]
			require.NotEmpty(t, value, "a value of type %s", columns[column])
			switch {
			case column == "state":
				value = fmt.Sprint(state)
			case slices.Contains(empty, column):
				value = "null"
			}
			names, row = append(names, column), append(row, value)
		}
		db.Exec(t, `insert into tasker.board (`+strings.Join(names, ", ")+`) values (`+strings.Join(row, ", ")+`)`)
	}
	read := func(slot int) (rows map[string]map[string]any) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(db.QueryString(t, `select json_object_agg(task_uuid, to_jsonb(b))::text from tasker.board b where slot = $1`, slot)), &rows))
		return rows
	}
	before := read(0)
	require.Len(t, before, 4)
	db.Exec(t, spreadTasks.String(), slices.Collect(maps.Keys(before)))
	tasks, steps := read(0), read(8)
	require.Len(t, steps, 4)
	for id, was := range before {
		for _, column := range columnsOfSteps {
			require.Equal(t, was[column], steps[id][column], column)
			var none any
			if slices.Contains(columnsWithZero, column) {
				none = 0.0
			}
			require.Equal(t, none, tasks[id][column], column)
		}
		for _, column := range columnsOfTasks {
			require.Equal(t, was[column], tasks[id][column], column)
			require.Nil(t, steps[id][column], column)
		}
		require.Equal(t, was["queue"], steps[id]["queue"])
		require.Equal(t, was["queue"], tasks[id]["queue"])
	}
}

// A statement that puts another attempt or another step into a row sets every column of
// the step.
func TestARowThatGoesOnForgetsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement *stmt.Statement
		kept      []string // see below
	}{
		"moveTasks": {moveTasks, nil},
		// The same step again, in the same row.
		"retrySteps": {retrySteps, []string{"callable", "step_no", "attempt", "parents", "inputs", "tags", "batch", "checkpoint", "limit_line"}},
		// Null for a claimed step in the task's row; the fence checks the checkpoint.
		"settleMoves": {settleMoves, []string{"reported_at", "due_at", "retry_after_ms", "outcome", "retryable", "result", "error", "batch", "checkpoint",
			"wait", "awaits", "events"}},
	} {
		_, sets, found := strings.Cut(c.statement.String(), "update tasker.board")
		require.True(t, found, name)
		var missing []string
		for _, column := range columnsOfSteps {
			if !regexp.MustCompile(`\b` + column + ` = `).MatchString(sets) {
				missing = append(missing, column)
			}
		}
		require.ElementsMatch(t, c.kept, missing, name)
	}
}

// The rows of several claims are locked tasks before steps, as an action does that holds
// many tasks before it locks their steps.
func TestClaimsAreLockedInTheOrderOfAll(t *testing.T) {
	t.Parallel()
	a, b := uuid.UUID{1}, uuid.UUID{2}
	want := []ClaimKey{{TaskUUID: a, Step: 4, Token: 9}, {TaskUUID: b, Step: 0, Token: 1}, {TaskUUID: a, Slot: 2, Step: 1, Token: 3},
		{TaskUUID: a, Slot: 3, Step: 2, Token: 2}, {TaskUUID: b, Slot: 1, Step: 0, Token: 4}}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, compareClaims)
	require.Equal(t, want, got)
}

func TestStatementsHaveTheBoundOfClaims(t *testing.T) {
	t.Parallel()
	require.Equal(t, inClaim, fmt.Sprint(MaxInClaim))
}
