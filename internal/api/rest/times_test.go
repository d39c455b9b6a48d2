package rest_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTimesNeedAZone: a text without a zone is refused wherever a time is read, and lower-case
// letters are none of its faults.
func TestTimesNeedAZone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for about, request := range map[string]struct{ method, path, before, after string }{
		"start_at":            {http.MethodPost, "/v1/tasks", goodBody + `,"start_at":"`, `"}`},
		"deadline":            {http.MethodPost, "/v1/tasks", goodBody + `,"deadline":"`, `"}`},
		"created_before":      {http.MethodPost, "/v1/tasks/actions", `{"action":"cancel","actor":"a","reason":"r","dry_run":true,"filter":{"created_before":"`, `"}}`},
		"since of replays":    {http.MethodPost, "/v1/dlq/replay", `{"actor":"a","reason":"r","dry_run":true,"filter":{"since":"`, `"}}`},
		"deadline of enqueue": {http.MethodPost, "/v1/enqueue", `{"type":"typed","payload":{},"deadline":"`, `"}`},
	} {
		refused := h.do(request.method, request.path, request.before+"2126-01-31T09:00:00"+request.after)
		require.Equal(t, http.StatusBadRequest, refused.StatusCode, "%s: %s", about, refused.body)
		require.Contains(t, string(refused.body), "want RFC 3339 with a zone", about)
		for _, good := range []string{"2026-01-31T09:00:00Z", "2026-01-31t09:00:00z"} {
			require.NotContains(t, string(h.do(request.method, request.path, request.before+good+request.after).body), "RFC 3339", about)
		}
	}
	for _, name := range []string{"created_after", "created_before"} {
		refused := h.do(http.MethodGet, "/v1/tasks?"+name+"="+url.QueryEscape("2026-01-31T09:00:00"), "")
		require.Equal(t, http.StatusBadRequest, refused.StatusCode)
		require.Contains(t, string(refused.body), name+": invalid time")
		require.Equal(t, http.StatusOK, h.do(http.MethodGet, "/v1/tasks?"+name+"="+url.QueryEscape("2026-01-31t10:00:00+01:00"), "").StatusCode)
	}
}
