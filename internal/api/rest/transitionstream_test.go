package rest_test

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// TestTransitionsOfATask: the stream begins with the task as it is, and ends with it.
func TestTransitionsOfATask(t *testing.T) {
	t.Parallel()
	m := telemetry.Discard()
	base, transport, _ := operatedAt(t, func(o *rest.Orchestrator) { o.Metrics = m })
	c := client.New(client.Config{BaseURL: base, HTTP: &http.Client{Transport: transport}})
	slow, err := c.CreateTask(t.Context(), mood("slow"))
	require.NoError(t, err)
	var seen []string
	for tr, err := range c.Transitions(t.Context(), client.TransitionOptions{TaskUUID: slow.TaskUUID}) {
		require.NoError(t, err)
		if tr.Event == client.TransitionSnapshot {
			require.Equal(t, slow.TaskUUID, tr.Task.TaskUUID)
			_, err := c.CancelTask(t.Context(), slow.TaskUUID, client.Why{})
			require.NoError(t, err)
		}
		if tr.Event != "step" {
			seen = append(seen, tr.Event+" "+tr.State)
		}
	}
	require.Equal(t, []string{"open ", "snapshot ", "task cancelled"}, seen)
	seen = nil
	for tr, err := range c.Transitions(t.Context(), client.TransitionOptions{TaskUUID: slow.TaskUUID}) {
		require.NoError(t, err)
		seen = append(seen, tr.Event)
	}
	require.Equal(t, []string{"open", "snapshot"}, seen, "it has ended")
	require.GreaterOrEqual(t, testutil.ToFloat64(m.TransitionsSent), 1.0)
	require.Eventually(t, func() bool {
		return testutil.ToFloat64(m.EventStreamsEnded.WithLabelValues("transitions", "complete")) == 2 &&
			testutil.ToFloat64(m.EventStreams.WithLabelValues("transitions")) == 0
	}, 30*time.Second, 20*time.Millisecond)
}

// TestTransitionsSurviveReconnects: a reader that is cut off at random places and
// continues from its last place gets every transition, those of a task in order.
func TestTransitionsSurviveReconnects(t *testing.T) {
	t.Parallel()
	c, _ := operatedHouse(t)
	const tasks = 40
	o := client.TransitionOptions{Namespace: "shapes"}
	for tr, err := range c.Transitions(t.Context(), o) {
		require.NoError(t, err)
		require.Equal(t, client.TransitionOpen, tr.Event)
		require.NotEmpty(t, tr.ID)
		o.LastEventID = tr.ID
		break
	}
	made := make(chan error, 1)
	go func() {
		for range tasks {
			if _, err := c.CreateTask(t.Context(), mood("good")); err != nil {
				made <- err
				return
			}
		}
		made <- nil
	}()
	of, complete := map[string][]string{}, 0
	for complete < tasks {
		left := 1 + rand.IntN(4*tasks) // the largest batch fits
		for tr, err := range c.Transitions(t.Context(), o) {
			require.NoError(t, err)
			require.NotContains(t, []string{client.TransitionReset, client.TransitionOverflow}, tr.Event)
			if tr.ID != "" {
				o.LastEventID = tr.ID
			}
			if tr.Event != client.TransitionOpen {
				require.Equal(t, "chain 1.0.0 shapes", tr.Name+" "+tr.Version+" "+tr.Namespace)
				text := tr.Step + tr.Outcome + tr.State
				if list := of[tr.TaskUUID]; !contains(list, text) {
					of[tr.TaskUUID] = append(list, text)
					if tr.State == "complete" {
						complete++
					}
				}
			}
			if left--; left == 0 || complete == tasks {
				break
			}
		}
	}
	require.NoError(t, <-made)
	for task, list := range of {
		require.Equal(t, []string{"pending", "firstsuccess", "secondsuccess", "complete"}, list, task)
	}
}

func contains(list []string, text string) bool {
	for _, s := range list {
		if s == text {
			return true
		}
	}
	return false
}

func TestWhatCannotBeFollowed(t *testing.T) {
	t.Parallel()
	base, transport, _ := operatedAt(t)
	h := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	for query, status := range map[string]int{"task_uuid=x": 400, "task_uuid=" + uuid.NewString(): 404, "namespace=nowhere": 404} {
		resp, err := h.Get(base + "/v1/transitions/stream?" + query)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, status, resp.StatusCode, query)
	}
}
