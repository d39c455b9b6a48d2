package daemon

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/enginetest"
)

// TestBudgetsOfRequestsFollowTheConfiguration: a list takes its share of the budget for
// answers, a body longer than the budget for bodies takes all of it.
func TestBudgetsOfRequestsFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	loaded := loadToo(t, enginetest.Migrated(t), "")
	loaded.Orchestration.Web.BodyBudgetBytes, loaded.Orchestration.Web.AnswerBudgetBytes = 65536, 2<<20
	o, err := newOrchestrator(t.Context(), loaded, nil, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, o.Start(t.Context()))
	defer func() { require.NoError(t, o.Stop(context.Background())) }()
	base := "http://" + o.Addr().String()
	r := request(t, http.MethodGet, base+"/metrics", "")
	require.Contains(t, r.body, `tasker_web_budget_bytes{budget="bodies"} 65536`)
	require.Contains(t, r.body, `tasker_web_budget_bytes{budget="answers"} 2.097152e+06`)
	r = request(t, http.MethodPost, base+"/v1/tasks", `{"name":"`+strings.Repeat("x", 200_000)+`"}`)
	require.Equal(t, http.StatusUnprocessableEntity, r.status, r.body)
	r = request(t, http.MethodGet, base+"/v1/tasks", "")
	require.Equal(t, http.StatusOK, r.status, r.body)
	r = request(t, http.MethodGet, base+"/metrics", "")
	require.Contains(t, r.body, `tasker_web_budget_held_bytes{budget="bodies"} 0`)
}
