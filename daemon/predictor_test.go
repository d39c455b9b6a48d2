package daemon

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/wire"
)

// TestThePredictorOutsideIsAsked by the orchestrator that puts a step in line and by the
// worker that executes it: predict explain has its answer, and that it is no good, as a
// minute is for handlers of an instant.
func TestThePredictorOutsideIsAsked(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Steps []any }
		if json.NewDecoder(r.Body).Decode(&asked) != nil || r.Header.Get("Authorization") != "Bearer key" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"expected_ms": slices.Repeat([]int{60_000}, len(asked.Steps))})
	}))
	t.Cleanup(s.Close)
	p := newPair(t, "", func(l *config.Loaded) {
		l.Common.Predictor.URL, l.Common.Predictor.Token = s.URL+"/predict", "key"
	})
	p.template("predicted", "ok")
	put, err := http.NewRequestWithContext(p.ctx, http.MethodPut, p.rest+"/v1/namespaces/none/policies/ok",
		strings.NewReader(`{"policy":"shortest_expected","features":["n"],"reason":"test","actor":"test"}`))
	require.NoError(t, err)
	put.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(put)
	require.NoError(t, err)
	body, _ := io.ReadAll(got.Body)
	require.NoError(t, got.Body.Close())
	require.Equal(t, http.StatusOK, got.StatusCode, "%s", body)
	var list wire.PredictionList
	n := 0.0
	pgtest.Eventually(t, 2*time.Minute, func() (bool, string) {
		n++
		task := p.create("predicted", n).GetTaskUuid()
		p.end(task)
		text := p.get("/v1/tasks/" + task + "/predictions")
		require.NoError(t, json.Unmarshal(text, &list))
		notFollowed := func(why string) float64 {
			return testutil.ToFloat64(p.orchestrator.metrics.PredictorNotFollowed.WithLabelValues(why))
		}
		return notFollowed("asked") > 0 && notFollowed("distrusted") > 0 && len(list.Predictions) == 1 && list.Predictions[0].Outside.Expected != nil, string(text)
	})
	require.InDelta(t, 60, *list.Predictions[0].Outside.Expected, 1e-9)
	require.False(t, list.Predictions[0].Outside.Trusted)
	require.GreaterOrEqual(t, list.Predictions[0].Outside.Judged, 16)
}
