package rest_test

import (
	"net/http"
	"strings"
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
	require.Empty(t, q.AppliesTo)
	h.do(http.MethodPut, quotaPath, `{"max_tasks":20,"applies_to":["sub_tasks","schedules","sub_tasks"],"actor":"ana"}`).into(t, &q)
	require.Equal(t, []string{"schedules", "sub_tasks"}, q.AppliesTo)
	h.do(http.MethodDelete, quotaPath+"?actor=ana", "").into(t, &q)
	require.Equal(t, []acted{{"set-quota", []string{"shapes", "ana", "one tenant"}}, {"set-quota", []string{"shapes", "ana", "set over the API"}}, {"delete-quota", []string{"shapes", "ana", "deleted over the API"}}}, o.taken())
	for body, want := range map[string]int{`{}`: 422, `{"max_tasks":-1}`: 400, `{"max_tasks":1000000001}`: 400, `{"max_tasks":"1"}`: 422, `{"max_tasks":1,"applies_to":["replays"]}`: 400, `{`: 400} {
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

const limitPath = "/v1/namespaces/shapes/submissions/diamond"

func TestSubmissionLimits(t *testing.T) {
	t.Parallel()
	o := &fakeOperator{}
	h := newHouse(t, operated(o))
	h.get("/v1/submission-limits").golden(t, "submission_limits")
	h.do(http.MethodPut, limitPath, `{"throttle":{"max":5,"period_ms":60000,"beyond":"delay"},"reason":"r","actor":"ana"}`).golden(t, "submission_limits")
	h.do(http.MethodDelete, limitPath+"?actor=ana", "").golden(t, "submission_limits")
	require.Equal(t, []acted{{"limits", ""}, {`limit {"throttle":{"max":5,"period_ms":60000,"beyond":"delay"}}`, []string{"shapes", "ana", "r", "diamond"}}, {"limits", "shapes"},
		{"limit {}", []string{"shapes", "ana", "deleted over the API", "diamond"}}, {"limits", "shapes"}}, o.taken())
	for body, want := range map[string]string{
		`{}`:                                   "give a throttle or a debounce",
		`{"throttle":{"max":0,"period_ms":1}}`: "throttle.max must be between 1 and 1000000",
		`{"throttle":{"max":1,"period_ms":0}}`: "throttle.period_ms must be",
		`{"throttle":{"max":1,"period_ms":1,"burst":2}}`:                              "throttle.burst must be between 0 and 1",
		`{"throttle":{"max":1,"period_ms":1,"beyond":"drop"}}`:                        `invalid throttle.beyond "drop": want refuse or delay`,
		`{"debounce":{"quiet_ms":9,"max_wait_ms":8}}`:                                 "debounce.max_wait_ms must be between 9",
		`{"debounce":{"quiet_ms":9,"keep":"all"}}`:                                    `invalid debounce.keep "all": want latest or first`,
		`{"debounce":{"quiet_ms":9,"key_path":["` + strings.Repeat("k", 256) + `"]}}`: "debounce: a member of key_path must have 1 to 255 characters",
		`{"throttle":{"max":1,"period_ms":1,"key_path":["a",""]}}`:                    "throttle: a member of key_path must have 1 to 255",
		`{"throttle":{"max":1,"period_ms":1,"key_path":["a"],"key_tag":"t:"}}`:        "throttle: want key_path or key_tag, not both",
	} {
		require.Contains(t, h.do(http.MethodPut, limitPath, body).refused(t, 400, "BAD_REQUEST").Message, want, body)
	}
	require.Empty(t, o.taken())
	require.Contains(t, h.do(http.MethodDelete, "/v1/namespaces/nowhere/submissions/diamond", "").refused(t, 404, "NOT_FOUND").Message, "Submission limit not found")
}

func TestATaskBeyondTheThrottleIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.engine.createErr = &submission.ThrottleError{Template: "shapes/diamond", RetryAfter: 2500 * time.Millisecond}
	resp := h.do(http.MethodPost, "/v1/tasks", goodBody+"}")
	require.Equal(t, "3", resp.Header.Get("Retry-After"))
	require.Equal(t, "as many tasks of shapes/diamond were created of late as its throttle allows", resp.refused(t, 429, "THROTTLED").Message)
}
