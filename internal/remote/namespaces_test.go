package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/worker/workertest"
	"github.com/tasker-go/tasker/workflow"
)

// TestASessionOfNamespaces gets, presents and continues steps of its namespaces alone.
func TestASessionOfNamespaces(t *testing.T) {
	t.Parallel()
	h, charge := newHub(patience), workflow.HandlerReference{Callable: "charge"}
	request := remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}, Permits: 2, Namespaces: []string{"shop", "more"}}
	shop, err := h.Open(t.Context(), request)
	require.NoError(t, err)
	of, known := h.Opened(shop.SessionID)
	require.True(t, known)
	require.Equal(t, request.Namespaces, of.Namespaces)
	require.True(t, h.CanResolve(charge))
	require.True(t, h.CanResolveIn("shop", charge))
	require.False(t, h.CanResolveIn("bank", charge))

	request.Namespaces = []string{"bank"}
	bank, err := h.Open(t.Context(), request)
	require.NoError(t, err)
	ofBank, ofShop := start(t, h, workertest.Step{Namespace: "bank"}), start(t, h, workertest.Step{Namespace: "shop"})
	one, _ := next(t, h, bank.SessionID, 0)
	other, _ := next(t, h, shop.SessionID, 0)
	require.Equal(t, []string{"bank", "shop"}, []string{one.Namespace, other.Namespace})

	report(t, h, bank.SessionID, remote.Report{Fence: one.Fence, Outcome: remote.Success})
	require.Nil(t, result(t, ofBank).Failure)

	answer, err := h.Report(t.Context(), shop.SessionID, []remote.Report{{Fence: other.Fence, Outcome: remote.Success, Next: &remote.Next{Namespace: "bank"}}})
	require.NoError(t, err)
	require.Equal(t, 400, answer.Rejected[0].Status)
	require.Contains(t, answer.Rejected[0].Error, "next.namespace")
	report(t, h, shop.SessionID, remote.Report{Fence: other.Fence, Outcome: remote.Success})
	require.Nil(t, result(t, ofShop).Failure)

	request.Namespaces = []string{""}
	_, err = h.Open(t.Context(), request)
	var invalid *remote.InvalidError
	require.ErrorAs(t, err, &invalid)
}

// TestAStepOfAnotherNamespaceIsNotPresented, even with its fence.
func TestAStepOfAnotherNamespaceIsNotPresented(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	bank := open(t, h, 1, remote.Callable{Callable: "charge"})
	ended := start(t, h, workertest.Step{Namespace: "bank"})
	step, _ := next(t, h, bank, 0)
	opened, err := h.Open(t.Context(), remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}, Namespaces: []string{"shop"},
		Held: []remote.Held{{Fence: step.Fence, TaskUUID: step.TaskUUID.String()}}})
	require.NoError(t, err)
	require.Empty(t, opened.Kept)
	report(t, h, bank, remote.Report{Fence: step.Fence, Outcome: remote.Success})
	require.Nil(t, result(t, ended).Failure)
}

// TestAStepOfAnotherPrincipalIsNotPresented, even with its fence and in its namespace.
func TestAStepOfAnotherPrincipalIsNotPresented(t *testing.T) {
	t.Parallel()
	h := newHub(patience)
	request := remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "charge"}}, Namespaces: []string{"shop"}, Principal: "api_key ana"}
	ana, err := h.Open(t.Context(), request)
	require.NoError(t, err)
	ended := start(t, h, workertest.Step{Namespace: "shop"})
	step, _ := next(t, h, ana.SessionID, 0)
	held := []remote.Held{{Fence: step.Fence, TaskUUID: step.TaskUUID.String()}}

	bo := request
	bo.Principal, bo.Held = "api_key bo", held
	opened, err := h.Open(t.Context(), bo)
	require.NoError(t, err)
	require.Empty(t, opened.Kept)
	require.NoError(t, h.Close(opened.SessionID))

	request.Held = held
	again, err := h.Open(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, again.Kept, 1)
	report(t, h, again.SessionID, remote.Report{Fence: again.Kept[0].NewFence, Outcome: remote.Success})
	require.Nil(t, result(t, ended).Failure)
}
