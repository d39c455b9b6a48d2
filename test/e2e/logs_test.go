package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/test/fleet"
)

// lines are those of a log in JSON with a message.
func lines(p *fleet.Process, message string) (found []map[string]any) {
	for text := range strings.Lines(p.Log()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && (line["msg"] == message || line["message"] == message) {
			found = append(found, line)
		}
	}
	return found
}

// soon waits for lines: what a process prints arrives a little later.
func soon(t *testing.T, p *fleet.Process, message string) (found []map[string]any) {
	t.Helper()
	pgtest.Eventually(t, 10*time.Second, func() (bool, string) {
		found = lines(p, message)
		return len(found) > 0, "no line " + message
	})
	return found
}

// TestLevelsOfRoomsChangeOverTheAPI of running daemons; a failed step is told with all that leads
// to it.
func TestLevelsOfRoomsChangeOverTheAPI(t *testing.T) {
	t.Parallel()
	r := pair(t, "Hybrid", "")
	worker := r.all[1]
	for _, p := range r.all {
		c := client.New(client.Config{BaseURL: p.URL})
		before, err := c.LogLevels(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, before, 1)
		require.Empty(t, lines(p, "request"))
		now, err := c.LogLevels(t.Context(), map[string]string{"api": "debug"})
		require.NoError(t, err)
		require.Equal(t, map[string]string{"all": before["all"], "api": "debug"}, now)
		_, err = c.LogLevels(t.Context(), nil)
		require.NoError(t, err)
		require.NotEmpty(t, soon(t, p, "request"), "what only debug shows")
		_, err = c.LogLevels(t.Context(), map[string]string{"kitchen": "debug"})
		require.ErrorContains(t, err, "kitchen")
	}

	task := r.run("mathematical_sequence", `{"even_number": 3}`)
	require.Equal(t, "error", task.Status)
	failed := soon(t, worker, "step failed")
	for _, key := range telemetry.LeadingLogKeys {
		require.Contains(t, failed[0], key.Name)
	}
	require.Equal(t, task.CorrelationID, failed[0]["correlation_id"])
	require.Equal(t, "mathematical_sequence", failed[0]["template"])
}
