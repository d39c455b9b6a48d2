package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
)

// A watched list is written again where it has changed, and ends with Ctrl-C.
func TestWatchedLists(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	s.beforePause = func() {
		if len(s.pauses) == 3 {
			cancel()
		}
	}
	o := s.run(ctx, "", "task", "list", "--watch", "--interval", "5s", "--columns", "status,age")
	require.Zero(t, o.code, o.stderr)
	require.Len(t, s.pauses, 3)
	require.Equal(t, 3, strings.Count(o.stdout, "STATUS"), "the age has changed each time")
	for _, age := range []string{"8.0s", "13.0s", "18.0s"} {
		require.Contains(t, o.stdout, age)
	}
	require.Equal(t, exitUsage, s.run(t.Context(), "", "task", "list", "--watch", "--interval", "1ms").code)
}

// A watched list on a terminal is drawn over the one before.
func TestWatchedListsOnATerminal(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.live = terminal{live: true, size: func() (int, int) { return 80, 24 }}
	ctx, cancel := context.WithCancel(t.Context())
	s.beforePause = func() {
		if len(s.pauses) == 2 {
			cancel()
		}
	}
	o := s.run(ctx, "", "worker", "list", "--watch")
	require.Zero(t, o.code, o.stderr)
	require.Equal(t, 2, strings.Count(o.stdout, wrapOff))
}

// A watched list outlives a server that is away for a moment, and ends where it stays away.
func TestWatchedListsWaitForTheServer(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.beforePause = func() { s.api.silent = true }
	o := s.run(t.Context(), "", "namespace", "list", "--watch")
	require.Equal(t, exitUnavailable, o.code)
	require.Contains(t, o.stderr, "trying again")
	require.Equal(t, 1, strings.Count(o.stdout, "NAMESPACE"))
}

// longList answers lists of n tasks by pages and cursors, as the server does.
func longList(t *testing.T, n int) (url string, ids []string) {
	t.Helper()
	named := func(id string) *client.Task {
		task := fakeTask(completeTask)
		task.TaskUUID = id
		return task
	}
	for i := range n {
		ids = append(ids, fmt.Sprintf("019d1c5e-0c3e-7a41-9a0e-%012x", n-i))
	}
	return newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, one := strings.CutPrefix(r.URL.Path, "/v1/tasks/"); one {
			answer(w, named(strings.TrimSuffix(id, "/workflow_steps")))
			return
		}
		q := r.URL.Query()
		per, _ := strconv.Atoi(q.Get("per_page"))
		if per > tasksPerPage {
			fail(w, http.StatusBadRequest, "BAD_REQUEST", "per_page must be between 1 and 100")
			return
		}
		left := ids
		if cursor := q.Get("cursor"); cursor != client.NewestTasks {
			for len(left) > 0 && left[0] >= cursor {
				left = left[1:]
			}
		}
		list := client.TaskList{Tasks: []client.Task{}}
		for _, id := range left[:min(per, len(left))] {
			list.Tasks = append(list.Tasks, *named(id))
		}
		if per < len(left) {
			list.NextCursor = left[per-1]
		}
		answer(w, list)
	})), ids
}

// More tasks than a page of the server has are listed, and no more than were asked for.
func TestLongListsOfTasks(t *testing.T) {
	t.Parallel()
	url, ids := longList(t, 250)
	for _, n := range []int{101, 200, 230, 1000} {
		o := newSession(t).run(t.Context(), "", "--orchestration-url", url, "task", "list", "-o", "json", "-l", strconv.Itoa(n))
		require.Zero(t, o.code, o.stderr)
		var list client.TaskList
		require.NoError(t, json.Unmarshal([]byte(o.stdout), &list))
		require.Len(t, list.Tasks, min(n, len(ids)))
		for i := range list.Tasks {
			require.Equal(t, ids[i], list.Tasks[i].TaskUUID)
		}
		require.Equal(t, n < len(ids), list.NextCursor != "")
	}
}

// The beginning of a UUID finds the one task that it belongs to among any number of others.
func TestTasksByTheBeginningOfTheirUUIDs(t *testing.T) {
	t.Parallel()
	url, ids := longList(t, 250)
	for begins, want := range map[string]string{
		"019d1c5e-0c3e-7a41-9a0e-0000000000f":  "ambiguous", // f0 to fa
		"019d1c5e-0c3e-7a41-9a0e-00000000001":  "ambiguous",
		"019d1c5e0c3e7a419a0e0000000000f1":     ids[250-0xf1],
		"019D1C5E-0C3E-7A41-9A0E-0000000000F1": ids[250-0xf1],
		"019d1c5e-0c3e-7a41-9a0e-000000000":    "ambiguous",
		"019d1c5e-0c3e-7a41-9a0e-00000000ff":   "there is no task",
		"019d1c5f":                             "there is no task",
	} {
		o := newSession(t).run(t.Context(), "", "--orchestration-url", url, "task", "get", begins)
		require.Contains(t, o.stdout+o.stderr, want, begins)
	}
	last := ids[len(ids)-1] // …001
	o := newSession(t).run(t.Context(), "", "--orchestration-url", url, "-o", "json", "task", "get", last[:len(last)-1])
	require.Equal(t, exitUsage, o.code, o.stderr)
}

func TestTheLastUUIDThatBeginsSo(t *testing.T) {
	t.Parallel()
	require.Equal(t, "019d1c5e-ffff-ffff-ffff-ffffffffffff", lastOf("019d1c5e"))
	require.Equal(t, "019d1fff-ffff-ffff-ffff-ffffffffffff", lastOf("019d1"))
	require.Equal(t, uuid.Max.String(), lastOf("nothing"))
}

// A worker without a name, and that is not at the usual address, is found in the fleet.
func TestTheWorkerOfTheFleetIsFound(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"health": {"system", "health"}, "info": {"system", "info"}, "mode": {"system", "mode", "--daemon", "worker"},
		"log levels": {"system", "log-level", "--daemon", "worker"}, "breakers": {"system", "breakers", "--daemon", "worker"},
		"health of the worker": {"worker", "health"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSession(t)
			s.deaf, s.api.near = true, true
			delete(s.env, "TASKER_WORKER_URL")
			o := s.run(t.Context(), "", append([]string{"-v"}, args...)...)
			require.Zero(t, o.code, o.stderr)
			require.Contains(t, o.stderr, "as it has registered")
		})
	}
	s := newSession(t)
	s.deaf, s.api.near, s.api.many = true, true, true
	delete(s.env, "TASKER_WORKER_URL")
	o := s.run(t.Context(), "", "system", "mode", "PollingOnly", "--daemon", "worker")
	require.Equal(t, exitUsage, o.code)
	require.Contains(t, o.stderr, "there are several workers")
}
