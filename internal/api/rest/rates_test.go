package rest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// fakeRates has one callable of the namespace shop, and remembers the last period.
type fakeRates struct{ period *store.Period }

var ratesAt = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

func (f fakeRates) read(p store.Period) store.ReadRates {
	if f.period != nil {
		*f.period = p
	}
	return store.ReadRates{At: ratesAt, Since: ratesAt.Add(-time.Hour), Till: ratesAt, DepthsSeen: &ratesAt}
}

var ratesFigures = store.CallFigures{Succeeded: 3, Failed: 1, WaitingMS: 40, RunningMS: 400, Waiting: []int{0, 0, 0, 0, 4}, Running: []int{0, 0, 0, 0, 0, 0, 0, 4}}

func (f fakeRates) CallOverview(_ context.Context, p store.Period, namespaces []string, limit int, _ time.Duration) (store.CallOverview, error) {
	o := store.CallOverview{ReadRates: f.read(p), Gaps: []store.RatesGap{{Kind: "worker", ID: "w-1", From: ratesAt}}}
	if len(namespaces) == 0 || namespaces[0] == "shop" {
		call := store.CallRates{Namespace: "shop", Handler: workflow.HandlerReference{Callable: "charge"}, CallFigures: ratesFigures, Depth: 7, InRun: 2, Oldest: time.Second}
		for range min(limit, 1) {
			o.Calls = append(o.Calls, call)
		}
	}
	return o, nil
}

func (f fakeRates) CallSeries(_ context.Context, p store.Period, namespace string, of workflow.HandlerReference, _ int, _ time.Duration) (store.CallSeries, error) {
	if namespace != "shop" || of.Callable != "charge" {
		return store.CallSeries{}, store.ErrNotFound
	}
	return store.CallSeries{ReadRates: f.read(p), Points: []store.CallPoint{{At: ratesAt, CallFigures: ratesFigures}},
		Depths:   []store.DepthPoint{{At: ratesAt.Add(-time.Minute), Waiting: 1}, {At: ratesAt, Waiting: 7, Running: 2, Oldest: time.Second}},
		Versions: []store.CallVersion{{Task: "order", Version: "1", Step: "pay", CallFigures: ratesFigures}}}, nil
}

func (f fakeRates) NamespaceRates(_ context.Context, p store.Period, namespaces []string, series bool, _ int, _ time.Duration) (store.NamespaceOverview, error) {
	o := store.NamespaceOverview{ReadRates: f.read(p)}
	tasks := store.TaskFigures{Created: 9, Completed: 3, Failed: 1, EndedMS: 8000}
	if len(namespaces) == 0 || namespaces[0] == "shop" {
		o.Namespaces = []store.NamespaceRates{{Namespace: "shop", TaskFigures: tasks, Waiting: 7}}
	}
	if series {
		o.Points = []store.NamespacePoint{{At: ratesAt, TaskFigures: tasks}}
	}
	return o, nil
}

// TestRates: times are in pieces that suit them, and what waits is shown beside what was done.
func TestRates(t *testing.T) {
	t.Parallel()
	var asked store.Period
	h := newHouse(t)
	h.store.fakeRates.period = &asked
	var list client.CallableRatesList
	h.get("/v1/metrics/callables").into(t, &list)
	require.Equal(t, store.Period{Last: time.Hour, Grain: 10 * time.Minute}, asked, "an hour, of few sums")
	require.Len(t, list.Callables, 1)
	c := list.Callables[0]
	require.EqualValues(t, 4, c.Attempts())
	require.Equal(t, client.Durations{Count: 4, Mean: 0.1, P50: 0.096, P95: 0.1248, P99: 0.12736}, c.Running)
	require.Equal(t, client.Depth{Waiting: 7, Running: 2, OldestSeconds: 1}, c.Depth)
	require.Equal(t, "w-1", list.Gaps[0].ID)

	var series client.CallableSeries
	h.get("/v1/metrics/callable?namespace=shop&callable=charge&last_seconds=86400").into(t, &series)
	require.Equal(t, 10*time.Minute, asked.Grain)
	require.Len(t, series.Points, 2)
	require.Zero(t, series.Points[0].Attempts())
	require.Equal(t, 1, series.Points[0].Depth.Waiting)
	require.Equal(t, 7, series.Points[1].Depth.Waiting)
	require.Equal(t, "pay", series.Versions[0].Step)

	var namespaces client.NamespaceRatesList
	h.get("/v1/metrics/namespaces").into(t, &namespaces)
	require.Empty(t, namespaces.Points)
	h.get("/v1/metrics/namespaces?namespace=shop").into(t, &namespaces)
	require.InDelta(t, 2, namespaces.Namespaces[0].MeanSeconds, 0)
	require.Len(t, namespaces.Points, 1)
	h.get("/v1/metrics/callable?namespace=shop&callable=charge&last_seconds=31536000&resolution=86400").into(t, &series)
}

// TestRatesThatCannotBeRead: what is wrong with requests, and what is not there.
func TestRatesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, query := range []string{
		"callables?from=2026-01-02T00:00:00Z&last_seconds=60", "callables?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z",
		"callables?from=2020-01-02T00:00:00Z", "callables?resolution=61", "callable?namespace=shop",
		"callable?namespace=shop&callable=charge&last_seconds=31536000&resolution=60",
	} {
		h.get("/v1/metrics/"+query).refused(t, http.StatusBadRequest, "BAD_REQUEST")
	}
	for _, query := range []string{"callable?namespace=shop&callable=other", "callable?namespace=%00&callable=other", "namespaces?namespace=other"} {
		h.get("/v1/metrics/"+query).refused(t, http.StatusNotFound, "NOT_FOUND")
	}
}
