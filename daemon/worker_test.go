package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/worker"
)

func TestStepProcessing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		health worker.Health
		want   deploymode.Level
		says   string
	}{
		"idle":    {worker.Health{Limit: 4}, deploymode.Healthy, "0 of 4 handlers are running"},
		"full":    {worker.Health{Limit: 4, Running: 4}, deploymode.Healthy, "4 of 4 handlers are running"},
		"zombies": {worker.Health{Limit: 4, Running: 3, Zombies: 1}, deploymode.Degraded, "3 of 4 handlers are running; 1 of them ignore the end of their context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := stepProcessing(c.health)
			require.Equal(t, c.want, check.Status)
			require.Equal(t, c.says, check.Message)
		})
	}
}

func TestTemplatesOfAWorker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		health worker.Health
		reason string // "": loaded
	}{
		"starting":           {worker.Health{State: "starting"}, "the worker is starting"},
		"idle":               {worker.Health{State: "idle"}, "the worker is idle"},
		"all there":          {worker.Health{State: "running", Namespaces: []string{"a", "b"}}, ""},
		"every namespace":    {worker.Health{State: "running"}, ""},
		"one is missing":     {worker.Health{State: "running", Namespaces: []string{"a", "b"}, Missing: []string{"b"}}, ""},
		"nothing is there":   {worker.Health{State: "running", Namespaces: []string{"a", "b"}, Missing: []string{"a", "b"}}, "none of the namespaces is registered: a, b"},
		"it drains in order": {worker.Health{State: "draining", Namespaces: []string{"a"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded, reason := templatesLoaded(c.health)
			require.Equal(t, c.reason, reason)
			require.Equal(t, c.reason == "", loaded)
		})
	}
}

// TestRememberedIDs: 0 in the configuration is none, and not the default.
func TestRememberedIDs(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]int{0: -1, 1: 1, 10000: 10000} {
		var c config.Loaded
		c.Worker.EventSystems.Worker.Metadata.InProcessEvents.DeduplicationCacheSize = size
		require.Equal(t, want, worker.Configure(&c).DomainEvents.RememberedIDs)
	}
}
