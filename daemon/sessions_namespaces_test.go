package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/remote"
	sessionv1 "github.com/tasker-go/tasker/proto/tasker/session/v1"
)

// keyed sends a request with a key.
func keyed(t *testing.T, key, method, target string, body, into any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	doc, err := json.Marshal(body)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(string(doc)))
	require.NoError(t, err)
	r.Header.Set("X-API-Key", key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	if into != nil && answer.StatusCode < 300 {
		require.NoError(t, json.NewDecoder(answer.Body).Decode(into))
	}
	return answer.StatusCode
}

// TestSessionsOfNamespaces: credentials of some namespaces open sessions that get the steps of
// these alone, over REST and gRPC, and no other credentials reach such a session.
func TestSessionsOfNamespaces(t *testing.T) {
	t.Parallel()
	const guarded = "\n[worker.web.auth]\nenabled = true\napi_keys_enabled = true\napi_keys = [" +
		"{ key = \"all\", permissions = [\"workers:execute\"] }, " +
		"{ key = \"none\", permissions = [\"workers:execute\"], namespaces = [\"none\"] }, " +
		"{ key = \"other\", permissions = [\"workers:execute\"], namespaces = [\"other\"] }]\n"
	p := newPair(t, guarded, func(l *config.Loaded) {
		l.Worker.Sessions.ReclaimGrace, l.Worker.Namespaces = longGrace, []string{"none", "other"}
	})
	c := client.New(client.Config{BaseURL: p.rest})
	for _, namespace := range []string{"none", "other"} {
		_, err := c.RegisterTemplate(p.ctx, client.TemplateSource{Actor: "test", Reason: "test", Source: `{"name": "shared", "namespace_name": "` + namespace +
			`", "version": "1.0.0", "steps": [{"name": "s", "handler": {"callable": "shared"}}]}`})
		require.NoError(t, err)
	}
	create := func(namespace string) string {
		task, err := c.CreateTask(p.ctx, client.TaskRequest{Name: "shared", Namespace: namespace, Version: "1.0.0", Context: json.RawMessage(`{"of": "` + namespace + `"}`),
			Initiator: "test", SourceSystem: "test", Reason: "test"})
		require.NoError(t, err)
		return task.TaskUUID
	}
	all := "http://" + p.worker.Addr().String() + "/v1/sessions"
	open := remote.Open{Protocol: remote.Protocol, Callables: []remote.Callable{{Callable: "shared"}}, Permits: 4}
	var opened remote.Opened
	require.Equal(t, 201, keyed(t, "other", http.MethodPost, all, open, &opened))
	mine := all + "/" + opened.SessionID.String()
	for key, want := range map[string]int{"none": 404, "": 401, "all": 404, "other": 200} {
		require.Equal(t, want, keyed(t, key, http.MethodPost, mine+"/poll", nil, nil), key)
	}
	narrow := open
	narrow.Namespaces = []string{"none"}
	require.Equal(t, 403, keyed(t, "other", http.MethodPost, all, narrow, nil))

	foreign, own := create("none"), create("other")
	var step remote.Step
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		var polled remote.Polled
		require.Equal(t, 200, keyed(t, "other", http.MethodPost, mine+"/poll?wait=1s", nil, &polled))
		for _, s := range polled.Steps {
			require.Equal(t, "other", s.Namespace)
			step = s
		}
		return step.Fence != "", "no step"
	})
	require.Equal(t, own, step.TaskUUID.String())
	var answer remote.Reported
	done := remote.Reports{Reports: []remote.Report{{Fence: step.Fence, Outcome: remote.Success, Result: json.RawMessage(`1`)}}}
	require.Equal(t, 404, keyed(t, "none", http.MethodPost, mine+"/reports", done, nil))
	require.Equal(t, 200, keyed(t, "other", http.MethodPost, mine+"/reports", done, &answer))
	require.Empty(t, answer.Rejected)
	p.ended(t, own, "complete")

	over := func(key string) context.Context { return metadata.AppendToOutgoingContext(p.ctx, "x-api-key", key) }
	request := offers(1, "shared")
	request.Protocol, request.Namespaces = remote.Protocol, []string{"none"}
	refusedOne, err := sessionv1.NewSessionServiceClient(p.ofWork).Run(over("other"))
	require.NoError(t, err)
	require.NoError(t, refusedOne.Send(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Open{Open: request}}))
	_, err = refusedOne.Recv()
	refused(t, codes.PermissionDenied, err)
	s := p.overGRPC(over("none"), t, offers(1, "shared"))
	got := s.step()
	require.Equal(t, foreign, got.GetTaskUuid())
	s.succeed(got.GetFence(), `1`)
	p.ended(t, foreign, "complete")
	s.call(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Result{Result: &sessionv1.Query{Fence: "1.1"}}})
}
