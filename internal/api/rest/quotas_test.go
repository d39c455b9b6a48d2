package rest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/submission"
	"github.com/tasker-go/tasker/internal/wire"
)

const quotaPath = "/v1/namespaces/shapes/quota"

func TestQuotas(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get("/v1/quotas").golden(t, "quotas")
	o.taken()
	var q wire.Quota
	h.do(http.MethodPut, quotaPath, `{"max_tasks":20,"reason":"one tenant","actor":"ana"}`).into(t, &q)
	require.Equal(t, 20, q.MaxTasks)
	h.do(http.MethodDelete, quotaPath+"?actor=ana", "").into(t, &q)
	require.Equal(t, []acted{{"set-quota", []string{"shapes", "ana", "one tenant"}}, {"delete-quota", []string{"shapes", "ana", "deleted over the API"}}}, o.taken())
	for body, want := range map[string]int{`{}`: 422, `{"max_tasks":-1}`: 400, `{"max_tasks":1000000001}`: 400, `{"max_tasks":"1"}`: 422, `{`: 400} {
		require.Equal(t, want, h.do(http.MethodPut, quotaPath, body).StatusCode, body)
	}
	require.Empty(t, o.taken())
	require.Contains(t, h.do(http.MethodPut, "/v1/namespaces/nowhere/quota", `{"max_tasks":1}`).refused(t, 404, "NOT_FOUND").Message, "Namespace not found")
	require.Contains(t, h.do(http.MethodDelete, "/v1/namespaces/nowhere/quota", "").refused(t, 404, "NOT_FOUND").Message, "Quota not found")
	h.do(http.MethodDelete, "/v1/namespaces/%00/quota", "").refused(t, 404, "NOT_FOUND")
}

func TestATaskBeyondTheQuotaIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine.createErr = &submission.QuotaError{Namespace: "shapes", RetryAfter: 300 * time.Millisecond}
	resp := h.do(http.MethodPost, "/v1/tasks", goodBody+"}")
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.Equal(t, "the namespace shapes has as many tasks that have not ended as its quota allows", resp.refused(t, 429, "QUOTA_EXCEEDED").Message)
}
