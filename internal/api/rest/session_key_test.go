package rest_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// A session whose credentials are for all namespaces goes on with the steps of the process's former
// worker, also where they are a key of the database, whose list of namespaces is empty.
func TestASessionOfAllNamespacesGoesOnWithItsSteps(t *testing.T) {
	t.Parallel()
	e := enginetest.Start(t, func(*worker.Worker) error { return nil }, func(_ *orchestration.Config, w *worker.Config) { w.Namespaces = []string{"other"} })
	_, err := e.Store.RegisterTemplates(t.Context(), store.Registrant{ID: "test", Immutable: store.VersionsRefuse}, []*workflow.Template{{Name: "pay", Namespace: "shop", Version: "1.0.0",
		Steps: []workflow.StepTemplate{{Name: "pay", Kind: workflow.KindStandard, Handler: workflow.HandlerReference{Callable: "pay"}}}}})
	require.NoError(t, err)
	plan, err := e.Store.PlanNamed(t.Context(), "shop", "pay", "1.0.0")
	require.NoError(t, err)
	key := auth.NewKey()
	hash := auth.HashKey(key)
	_, err = e.Store.CreateAPIKey(t.Context(), store.NewAPIKey{Hash: hash[:], Name: "shop", Permissions: []string{"workers:execute"}}, store.OperatorAction{Actor: "test", Action: "create_api_key", Reason: "test"})
	require.NoError(t, err)
	authenticator, err := auth.New(auth.Options{Keys: &auth.KeyOptions{Stored: rest.StoredCredentials{Database: e.Store}}})
	require.NoError(t, err)
	adopted := 0
	h := newWorkerHouse(t, newFakeStatus(), newFakeStore(), func(c *rest.Config, w *rest.Worker) {
		c.Access = rest.Access{Authenticator: authenticator, KeyHeader: "X-API-Key"}
		w.Sessions = remote.New(remote.Config{MaxSessions: 10, MaxPermits: 1, ReclaimGrace: time.Minute, Offer: func() {}, Metrics: telemetry.Discard(),
			Adopt: func(ctx context.Context, held []store.HeldClaim, namespaces []string, _ func(map[int64]int64)) (bool, error) {
				list, locked, err := e.Store.Adopt(ctx, uuid.New(), held, namespaces, time.Minute)
				adopted += len(list)
				return locked, err
			}})
	})
	for i, namespaces := range []string{"", `"namespaces":[],`} {
		task := e.Submit("shop", "pay", fmt.Sprintf(`{"n":%d}`, i))
		claimed, _, err := e.Store.Claim(t.Context(), store.ClaimRequest{Worker: uuid.New(), Callables: plan.Callables, Limit: 1, Lease: time.Minute}, true)
		require.NoError(t, err)
		require.Len(t, claimed, 1)
		opened := h.do(http.MethodPost, "/v1/sessions", fmt.Sprintf(`{"protocol":1,%s"callables":[{"callable":"pay"}],"held":[{"fence":"%d.1","task_uuid":%q}]}`, namespaces, claimed[0].Token, task), "X-API-Key", key)
		require.Equal(t, http.StatusCreated, opened.StatusCode, "%s", opened.body)
		require.Equal(t, i+1, adopted)
	}
}
