package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// recorded is a checkpoint as stored.
type recorded struct {
	Cursor      json.RawMessage `json:"cursor"`
	Items       int64           `json:"items_processed"`
	Timestamp   string          `json:"timestamp"`
	Accumulated json.RawMessage `json:"accumulated_results"`
	History     []struct {
		Cursor    json.RawMessage `json:"cursor"`
		Timestamp string          `json:"timestamp"`
	} `json:"history"`
}

func (r *recorded) cursors() (list []string) {
	for _, h := range r.History {
		list = append(list, string(h.Cursor))
	}
	return list
}

// onBoard reads the checkpoint of the step that a claim is of.
func onBoard(t testing.TB, db *pgtest.DB, c store.Claimed) *recorded {
	t.Helper()
	var document *string
	require.NoError(t, db.Pool(t).QueryRow(t.Context(), `select checkpoint::text from tasker.board where task_uuid = $1 and step_no = $2`,
		c.TaskUUID, c.Step).Scan(&document))
	if document == nil {
		return nil
	}
	r := &recorded{}
	require.NoError(t, json.Unmarshal([]byte(*document), r))
	return r
}

// inLedger lists the cursors with which the attempts of a step were recorded, in
// the order of claims.
func inLedger(t testing.TB, db *pgtest.DB, task uuid.UUID, step int) string {
	t.Helper()
	return db.QueryString(t, `select coalesce(string_agg(coalesce((checkpoint -> 'cursor')::text, '-'), ' ' order by token), '')
		from tasker.step_attempts where task_uuid = $1 and step_no = $2`, task, step)
}

func point(c store.Claimed, cursor string, items int64) store.Checkpoint {
	return store.Checkpoint{ClaimKey: c.Key(), Cursor: json.RawMessage(cursor), Items: items}
}

func save(t testing.TB, s *store.Store, list ...store.Checkpoint) []store.SavedCheckpoint {
	t.Helper()
	saved, err := s.SaveCheckpoints(t.Context(), list, 3, time.Minute)
	require.NoError(t, err)
	require.Len(t, saved, len(list))
	return saved
}

// saveOne saves a checkpoint that must be accepted.
func saveOne(t testing.TB, s *store.Store, c store.Claimed, cursor string) {
	t.Helper()
	require.True(t, save(t, s, point(c, cursor, 1))[0].Saved)
}

// dueNow makes everything scheduled due.
func dueNow(t testing.TB, s *store.Store, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `update tasker.board set due_at = now() - interval '1 s' where state = 1`)
	_, err := s.PromoteDue(t.Context(), store.UpTo(100))
	require.NoError(t, err)
}

func TestCheckpointsAreSaved(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	create(t, s, p, 1)
	c := claim(t, s, p, 1)[0]
	require.Nil(t, c.Checkpoint)
	require.Nil(t, onBoard(t, db, c))
	db.Exec(t, `update tasker.board set lease_until = now() + interval '1 s'`)

	first := point(c, `25`, 25)
	first.Accumulated = json.RawMessage(`{"sum": 1}`)
	saved := save(t, s, first)[0]
	require.True(t, saved.Saved)
	require.InDelta(t, time.Minute.Seconds(), saved.Lease.Seconds(), 5, "it extends the lease")
	got := onBoard(t, db, c)
	require.JSONEq(t, `25`, string(got.Cursor))
	require.EqualValues(t, 25, got.Items)
	require.JSONEq(t, `{"sum": 1}`, string(got.Accumulated))
	require.Empty(t, got.History)
	require.True(t, strings.HasSuffix(got.Timestamp, "Z"))
	at, err := time.Parse(time.RFC3339Nano, got.Timestamp)
	require.NoError(t, err)
	require.True(t, at.Equal(saved.At), "%v %v", at, saved.At)

	require.True(t, save(t, s, point(c, `50`, 50))[0].Saved)
	got = onBoard(t, db, c)
	require.Equal(t, []string{"25"}, got.cursors(), "the history has what was before")
	require.Equal(t, at.UTC().Format("2006-01-02T15:04:05.000000Z"), got.History[0].Timestamp)
	require.Nil(t, got.Accumulated, "a checkpoint replaces the one before")

	require.True(t, save(t, s, point(c, `50`, 55))[0].Saved, "the same once more")
	got = onBoard(t, db, c)
	require.Equal(t, []string{"25"}, got.cursors())
	require.EqualValues(t, 55, got.Items)

	for cursor := 60; cursor < 100; cursor += 10 {
		saveOne(t, s, c, fmt.Sprint(cursor))
	}
	require.Equal(t, []string{"60", "70", "80"}, onBoard(t, db, c).cursors(), "the newest are kept")
	for _, keep := range []int{1, 0} {
		_, err := s.SaveCheckpoints(t.Context(), []store.Checkpoint{point(c, fmt.Sprint(100-keep), 1)}, keep, time.Minute)
		require.NoError(t, err)
		require.Len(t, onBoard(t, db, c).History, keep)
	}

	// A claim includes all but the history.
	_, err = s.HandBack(t.Context(), []store.ClaimKey{c.Key()})
	require.NoError(t, err)
	c = claim(t, s, p, 1)[0]
	require.Equal(t, 1, c.Attempt)
	var stored map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(c.Checkpoint, &stored))
	require.Len(t, stored, 3)
	require.JSONEq(t, `100`, string(stored["cursor"]))
	require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
	applyAll(t, s)
	require.Equal(t, "100", inLedger(t, db, c.TaskUUID, 0))
	noViolations(t, s)
}

func TestCursorsOfEveryKind(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	kinds := []string{`7`, `"a-7"`, `{"at": "2026-01-01", "page": [1, 2]}`, `null`, `[1]`, `1.5`, `true`}
	create(t, s, p, len(kinds))
	claimed := claim(t, s, p, len(kinds))
	list := make([]store.Checkpoint, len(kinds))
	for i, kind := range kinds {
		list[i] = point(claimed[i], kind, int64(i))
	}
	for _, answer := range save(t, s, list...) {
		require.True(t, answer.Saved)
	}
	keys := make([]store.ClaimKey, len(kinds))
	for i, c := range claimed {
		require.JSONEq(t, kinds[i], string(onBoard(t, db, c).Cursor))
		keys[i] = c.Key()
	}
	_, err := s.HandBack(t.Context(), keys)
	require.NoError(t, err)
	for _, c := range claim(t, s, p, len(kinds)) {
		i := slices.IndexFunc(claimed, func(x store.Claimed) bool { return x.TaskUUID == c.TaskUUID })
		var got recorded
		require.NoError(t, json.Unmarshal(c.Checkpoint, &got))
		require.JSONEq(t, kinds[i], string(got.Cursor))
		require.EqualValues(t, i, got.Items)
	}
}

func TestStaleTokensSaveNothing(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	create(t, s, p, 2)
	claimed := claim(t, s, p, 2)
	one, other := claimed[0], claimed[1]
	saveOne(t, s, one, `1`)

	forged := point(one, `9`, 9)
	forged.Token += 1000
	elsewhere := point(one, `9`, 9)
	elsewhere.Step++
	answers := save(t, s, forged, point(other, `2`, 2), elsewhere)
	require.Equal(t, []bool{false, true, false}, []bool{answers[0].Saved, answers[1].Saved, answers[2].Saved})
	require.JSONEq(t, `1`, string(onBoard(t, db, one).Cursor))

	// Of several of one claim the last counts.
	for _, a := range save(t, s, point(one, `3`, 3), point(one, `4`, 4)) {
		require.True(t, a.Saved)
	}
	require.JSONEq(t, `4`, string(onBoard(t, db, one).Cursor))

	require.Equal(t, []bool{true}, report(t, s, fail(one, true, "no")))
	require.False(t, save(t, s, point(one, `5`, 5))[0].Saved, "it has been reported")
	applyAll(t, s)
	dueNow(t, s, db)
	again := claim(t, s, p, 1)[0]
	require.False(t, save(t, s, point(one, `5`, 5))[0].Saved, "another worker runs it")
	require.JSONEq(t, `4`, string(onBoard(t, db, again).Cursor))
}

// TestACheckpointRevivesNoLease: an operator has ended it, or a sweep.
func TestACheckpointRevivesNoLease(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, oneStepYAML)
	create(t, s, p, 1)
	c := claim(t, s, p, 1)[0]
	require.NoError(t, s.ReleaseLeases(t.Context(), []store.ClaimKey{c.Key()}))
	saved := save(t, s, point(c, `1`, 1))[0]
	require.True(t, saved.Saved, "no other worker has the step, so its progress counts")
	require.LessOrEqual(t, saved.Lease, time.Duration(0))
	n, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n.Lost)
	applyAll(t, s)
	require.Equal(t, "1", inLedger(t, db, c.TaskUUID, 0))
	again := claim(t, s, p, 1)[0]
	require.Equal(t, 2, again.Attempt)
	require.JSONEq(t, `1`, string(onBoard(t, db, again).Cursor), "the next attempt continues")
}

func TestStalledStepsAreShown(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, sidedYAML)
	ids := create(t, s, p, 4)
	claimed := claim(t, s, p, 100)
	require.Len(t, claimed, 8)
	for _, c := range claimed {
		saveOne(t, s, c, `500`)
	}
	silence := func(task uuid.UUID, step, minutes int) {
		db.Exec(t, `update tasker.board set checkpoint = jsonb_set(checkpoint, '{timestamp}', to_jsonb(now() - $3 * interval '1 minute'))
			where task_uuid = $1 and step_no = $2`, task, step, minutes)
	}
	silence(ids[0], 0, 20)
	silence(ids[0], 1, 16)
	silence(ids[1], 0, 14)
	silence(ids[2], 0, 30)
	for _, c := range claimed { // not running any more
		if c.TaskUUID == ids[2] && c.Step == 0 {
			require.Equal(t, []bool{true}, report(t, s, succeed(c, `1`)))
		}
	}
	stalled, err := s.StalledSteps(t.Context(), 15*time.Minute, 10)
	require.NoError(t, err)
	require.Len(t, stalled, 2)
	require.Equal(t, ids[0], stalled[0].TaskUUID)
	require.Equal(t, []any{"shapes", "sided", "one", 20, int64(1), 0}, []any{stalled[0].Namespace, stalled[0].Name, stalled[0].StepName,
		stalled[0].MinutesSince, stalled[0].Items, stalled[0].MinutesOld})
	require.Equal(t, "aside", stalled[1].StepName)
	some, err := s.StalledSteps(t.Context(), 15*time.Minute, 1)
	require.NoError(t, err)
	require.Equal(t, stalled[0].StepName, some[0].StepName, "the oldest first")

	th := thresholds
	th.Checkpoint = 15 * time.Minute
	monitor, err := s.StalenessMonitor(t.Context(), th, 100)
	require.NoError(t, err)
	health := map[uuid.UUID]string{}
	for _, m := range monitor {
		if m.Detail == "checkpoint" {
			health[m.TaskUUID] = fmt.Sprint(m.Health, " ", m.MinutesInState, " of ", m.ThresholdMinutes, " ", m.State)
		}
	}
	require.Equal(t, map[uuid.UUID]string{ids[0]: "stale 20 of 15 steps_in_process", ids[1]: "warning 14 of 15 steps_in_process"}, health)
	require.Equal(t, ids[0], monitor[0].TaskUUID)
	first, err := s.StalenessMonitor(t.Context(), th, 1)
	require.NoError(t, err)
	require.Len(t, first, 1)

	stale, _, err := s.StaleTasks(t.Context(), th, uuid.Nil, 100)
	require.NoError(t, err)
	require.Empty(t, stale, "no lease is ended")
	require.Equal(t, "stale 20", db.QueryString(t, `select health_status || ' ' || checkpoint_age_minutes from tasker.v_task_staleness_monitoring where task_uuid = $1`, ids[0]))
	require.Equal(t, "warning steps_in_process", db.QueryString(t, `select health_status || ' ' || current_state from tasker.v_task_staleness_monitoring where task_uuid = $1`, ids[1]))
	require.Equal(t, "healthy", db.QueryString(t, `select health_status from tasker.v_task_staleness_monitoring where task_uuid = $1`, ids[3]))
	require.Equal(t, 3, db.QueryInt(t, `select count(*) from tasker.v_checkpoints where age_seconds > 600 and state = 'in_progress' and items_processed = 1 and history_size = 0`))
}
