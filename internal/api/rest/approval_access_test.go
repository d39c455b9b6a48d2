package rest_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
)

// The token of an approval is a UUID, which has several spellings: each is of the namespace of the
// approval.
func TestApprovalsOfOtherNamespacesAreLocked(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	_, _, e := realHouse(t)
	cfg := bounded(t, rest.Config{Address: "127.0.0.1:0", MaxWait: time.Minute})
	cfg.Access = i.access()
	s, err := rest.NewOrchestrator(cfg, rest.Orchestrator{Engine: enginetest.Supervised{Orchestrator: e.Orchestrator}, Store: e.Store, ID: "test"})
	require.NoError(t, err)
	ask := func(namespace, method, token string) int {
		t.Helper()
		body := ""
		if method == http.MethodPost {
			body = `{"approved":true,"actor":"ana","data":{"mood":"good"}}`
		}
		r := request(method, approvalsPath+"/"+url.PathEscape(token), body, "Authorization", "Bearer "+i.token([]string{namespace}, "approvals:read", "approvals:decide"))
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(t.Context()))
		return w.Code
	}

	task := e.Submit("shapes", "waiting", `{"order":7}`)
	e.Until(task, func(task *store.Task) bool { return task.Steps[0].Waiting != nil })
	_, err = e.Orchestrator.ReceiveEvent(t.Context(), orchestration.Event{Namespace: "shapes", Name: "paid", Key: "7"})
	require.NoError(t, err)
	e.Until(task, func(task *store.Task) bool { return task.Steps[1].Waiting != nil })
	list, err := e.Orchestrator.Approvals(t.Context(), store.ApprovalFilter{TaskUUID: &task, Limit: 1})
	require.NoError(t, err)
	require.Len(t, list.Approvals, 1)
	token := list.Approvals[0].Token
	for _, spelt := range []string{token, strings.ToUpper(token), "{" + token + "}", "urn:uuid:" + token, strings.ReplaceAll(token, "-", "")} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			require.Equal(t, http.StatusNotFound, ask("other", method, spelt), "%s %s", method, spelt)
		}
		require.Equal(t, http.StatusOK, ask("shapes", http.MethodGet, spelt), spelt)
	}
	require.Equal(t, http.StatusOK, ask("shapes", http.MethodPost, strings.ToUpper(token)))
}
