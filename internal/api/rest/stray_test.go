package rest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/submission"
)

const keyless = `"name":"diamond","namespace":"shapes","version":"1.0.0","context":{},"initiator":"i","source_system":"s","reason":"r"`

// Tasker's own operations ignore what they do not know, and say so once; a misspelt key is
// refused everywhere, since what it should do would silently not be done.
func TestUnknownKeysOfBodies(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for range 2 {
		require.Equal(t, 200, h.do(http.MethodPost, "/v1/tasks", `{`+keyless+`,"shard":7,"options":{},"requested_at":"x"}`).StatusCode)
	}
	require.Equal(t, 1, h.logs.FilterMessage("a key of requests is unknown and ignored").Len())
	for key, near := range map[string]string{"idempotencykey": "idempotency_key", "Tags": "tags", "priorty": "priority", "idempotency-key": "idempotency_key", "tag": "tags"} {
		got := h.do(http.MethodPost, "/v1/tasks", `{`+keyless+`,"`+key+`":"x"}`).refused(t, http.StatusBadRequest, "BAD_REQUEST")
		require.Equal(t, `unknown key "`+key+`": did you mean "`+near+`"?`, got.Message)
	}
	bulk := h.do(http.MethodPost, "/v1/tasks/actions", `{"action":"cancel","filter":{"nmespace":"a"},"reason":"r","actor":"a"}`)
	require.Equal(t, `unknown key "filter.nmespace": did you mean "namespace"?`, bulk.refused(t, http.StatusBadRequest, "BAD_REQUEST").Message)
	own := h.do(http.MethodPost, "/v1/tasks/actions", `{"action":"cancel","filter":{"namespace":"a"},"reason":"r","actor":"a","colour":"red"}`)
	require.Equal(t, `unknown key "colour"`, own.refused(t, http.StatusBadRequest, "BAD_REQUEST").Message)
}

// A filter that is ignored would answer with everything, so an unknown one is refused; Tasker's
// operations ignore those that resemble none of theirs.
func TestUnknownQueryParameters(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for query, near := range map[string]string{"state=error": "status", "nmespace=a": "namespace", "perPage=3": "per_page", "Tag=x": "tag", "tags=x": "tag"} {
		key, _, _ := strings.Cut(query, "=")
		got := h.do(http.MethodGet, "/v1/tasks?"+query, "").refused(t, http.StatusBadRequest, "BAD_REQUEST")
		require.Equal(t, `unknown parameter "`+key+`": did you mean "`+near+`"?`, got.Message)
	}
	for range 2 {
		require.Equal(t, 200, h.do(http.MethodGet, "/v1/tasks?colour=red&page=1", "").StatusCode)
	}
	require.Equal(t, 1, h.logs.FilterMessage("a key of requests is unknown and ignored").Len())
	require.Equal(t, 200, h.do(http.MethodGet, "/health/live?probe=1", "").StatusCode)
	own := h.do(http.MethodGet, "/v1/schedules?colour=red", "").refused(t, http.StatusBadRequest, "BAD_REQUEST")
	require.Equal(t, `unknown parameter "colour"`, own.Message)
}

// A request with the header is repeated safely, as one with the key in its body is.
func TestIdempotencyKeyOfTheHeader(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	require.Equal(t, 200, h.do(http.MethodPost, "/v1/tasks", `{`+keyless+`}`, "Idempotency-Key", "order-7").StatusCode)
	require.Equal(t, "order-7", h.engine.created[0].IdempotencyKey)
	require.Equal(t, submission.ConflictPolicy(client.ConflictUseExisting), h.engine.created[0].Conflict)
	both := h.do(http.MethodPost, "/v1/tasks", `{`+keyless+`,"idempotency_key":"order-8"}`, "Idempotency-Key", "order-7")
	both.refused(t, http.StatusBadRequest, "BAD_REQUEST")
	require.Len(t, h.engine.created, 1)
}

func TestSendersCanFollowTheirRequests(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got := h.do(http.MethodGet, "/v1/tasks", "", "X-Correlation-Id", "order 7", "Traceparent", trace)
	require.Equal(t, "order 7", got.Header.Get("X-Correlation-Id"))
	require.Equal(t, trace, got.Header.Get("Traceparent"))
	line := h.logs.FilterMessage("request").All()[0].ContextMap()
	require.Equal(t, []any{"order 7", trace}, []any{line["correlation_id"], line["traceparent"]})
}
