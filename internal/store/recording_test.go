package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/order/simulate"
	"github.com/tasker-go/tasker/internal/store"
)

// A recording has every execution of the tasks of a time once, page by page, with what a
// replay needs of it.
func TestRecordingHasTheExecutionsOfATime(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, pairYAML)
	tagged, told := newTask(p), newTask(p)
	tagged.Tags, tagged.Priority = []string{"x", "tenant:a"}, 3
	told.Context = json.RawMessage(`{"shop":{"id":"b"},"rows":7}`)
	_, err := s.CreateTasks(t.Context(), []store.NewTask{tagged, told})
	require.NoError(t, err)
	create(t, s, p, 600) // more than a page, and never claimed
	for range 2 {
		claimed, _, err := s.Claim(t.Context(), store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Callables: p.Callables, Limit: 2, Lease: time.Minute}, true)
		require.NoError(t, err)
		require.Len(t, claimed, 2)
		report(t, s, succeed(claimed[0], `1`), fail(claimed[1], true, "again"))
		applyAll(t, s)
	}
	db.Exec(t, `update tasker.tasks set deadline = requested_at + interval '1 h' where task_uuid = $1`, tagged.UUID)

	read := func(f store.RecordingFilter) (records []simulate.Record, pages int) {
		f.Namespace, f.TenantTag, f.TenantPath = "pairs", "tenant:", []string{"shop", "id"}
		for {
			page, next, err := s.Recording(t.Context(), f)
			require.NoError(t, err)
			if next == uuid.Nil {
				return records, pages
			}
			records, pages, f.After = append(records, page...), pages+1, next
		}
	}
	hour := store.RecordingFilter{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)}
	records, _ := read(hour)
	require.Empty(t, records[0].Values)
	hour.Features, hour.Class = []string{"rows"}, "shop.id"
	records, pages := read(hour)
	require.Equal(t, 2, pages)
	require.Len(t, records, db.QueryInt(t, `select count(*) from tasker.step_attempts where claimed_at is not null`))
	byTenant := map[string]int{}
	for _, r := range records {
		byTenant[r.Tenant]++
		require.Equal(t, "pair", r.Template)
		require.Len(t, r.Values, 1)
		require.Equal(t, r.Class == "b", r.Values[0] == 7)
		require.Equal(t, r.Class == "b", r.Tenant == "b")
		require.Equal(t, r.Step, r.Handler)
		require.NotEmpty(t, r.Worker)
		require.NotZero(t, r.Token)
		require.Equal(t, r.Step == "second", r.Begun)
		require.Equal(t, r.Task == tagged.UUID.String(), r.Deadline != nil)
		require.Equal(t, r.Task == tagged.UUID.String(), r.Priority == 3)
	}
	require.Positive(t, byTenant["a"])
	require.Positive(t, byTenant["b"])
	jobs, err := simulate.Jobs(records, 2)
	require.NoError(t, err)
	require.Len(t, jobs, len(records))

	second := hour
	second.Handler = "second"
	records, _ = read(second)
	for _, r := range records {
		require.Equal(t, "second", r.Step)
	}
	require.NotEmpty(t, records)
	records, pages = read(store.RecordingFilter{From: time.Now().Add(time.Hour), To: time.Now().Add(2 * time.Hour)})
	require.Empty(t, records)
	require.Zero(t, pages)
}
