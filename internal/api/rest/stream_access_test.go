package rest_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/enginetest"
)

// revocable is a store with one API key.
type revocable struct{ revoked atomic.Bool }

func (r *revocable) APIKey(context.Context, auth.KeyHash) (*auth.APIKey, time.Time, error) {
	all, _ := auth.ParsePermissions([]string{"tasks:read", "events:read"})
	return &auth.APIKey{Name: "ana", Permissions: all, Namespaces: []string{"shapes"}, Revoked: r.revoked.Load()}, time.Now(), nil
}

// A stream lasts for an hour, and the credentials of its request may not: it ends with them.
func TestStreamsEndWithTheirCredentials(t *testing.T) {
	t.Parallel()
	i, keys := newIssuer(t), &revocable{}
	var clock atomic.Int64 // how far the time of the server is ahead
	authenticator, err := auth.New(auth.Options{Keys: &auth.KeyOptions{Stored: keys}, Tokens: &auth.TokenOptions{
		Keys: auth.Static{i.key.Public()}, Algorithms: []string{"EdDSA"}, Issuer: "tasker-core", Audience: "tasker-api",
		PermissionsClaim: "permissions", NamespacesClaim: "worker_namespaces",
		Now: func() time.Time { return i.now.Add(time.Duration(clock.Load())) },
	}})
	require.NoError(t, err)
	_, _, e := realHouse(t)
	cfg := bounded(t, rest.Config{Address: "127.0.0.1:0", MaxWait: time.Minute})
	cfg.Access = rest.Access{Authenticator: authenticator, KeyHeader: "X-API-Key"}
	s, err := rest.NewOrchestrator(cfg, rest.Orchestrator{Engine: enginetest.Supervised{Orchestrator: e.Orchestrator}, Store: e.Store, ID: "test", NewEvents: e.Orchestrator.NewEvents, MaxEventStreams: 4})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })

	var streams []func() string
	for _, header := range []string{"Authorization: Bearer " + i.token([]string{"shapes"}, "tasks:read", "events:read"), "X-API-Key: " + auth.NewKey()} {
		streams = append(streams, followed(t, "http://"+s.Addr().String()+"/v1/transitions/stream?namespace=shapes", header),
			followed(t, "http://"+s.Addr().String()+"/v1/events/stream?namespace=shapes", header))
	}
	happen := func(mood string) {
		e.Run("shapes", "chain", `{"mood":"`+mood+`"}`)
		emit(t, e, "shapes", "paid")
	}
	happen("good")
	for k, next := range streams {
		want := []string{"event: paid"}
		if k%2 == 0 {
			want = []string{"event: open", "event: task", "event: step", "event: step", "event: task"}
		}
		for _, event := range want {
			require.Equal(t, event, next())
		}
	}
	keys.revoked.Store(true)
	clock.Store(int64(2 * time.Hour))
	happen("better")
	for _, next := range streams {
		require.Equal(t, "the end", next())
	}
}

// followed opens a stream and returns its next event.
func followed(t *testing.T, address, header string) (next func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	name, value, _ := strings.Cut(header, ": ")
	r.Header.Set(name, value)
	transport := &http.Transport{}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = answer.Body.Close()
		transport.CloseIdleConnections()
	})
	require.Equal(t, http.StatusOK, answer.StatusCode)
	lines := bufio.NewScanner(answer.Body)
	return func() string {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "event: ") {
				return lines.Text()
			}
		}
		require.NoError(t, lines.Err())
		return "the end"
	}
}
