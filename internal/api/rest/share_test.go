package rest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// quietStore has a log of events in which nothing happens.
type quietStore struct{ lockedStore }

func (quietStore) LastEvent(context.Context, string) (int64, error) { return 7, nil }

func (quietStore) Events(context.Context, store.EventFilter) (store.EventPage, error) {
	return store.EventPage{}, nil
}

// shared is a server with shares, and the requests of principals that hold what is shared.
type shared struct {
	*house
	issuer  *issuer
	metrics *telemetry.Metrics
	base    string
}

func newShared(t *testing.T, change func(*rest.Config, *rest.Orchestrator)) *shared {
	t.Helper()
	s := &shared{issuer: newIssuer(t), metrics: telemetry.Discard()}
	s.house = newHouse(t, func(c *rest.Config, o *rest.Orchestrator) {
		c.Access, c.Telemetry, o.Metrics = s.issuer.access(), s.metrics, s.metrics
		c.Access.Share = 50
		engine := newFakeEngine()
		engine.wait = func(ctx context.Context) (bool, error) { <-ctx.Done(); return false, ctx.Err() }
		o.Engine, o.Store = lockedEngine{engine}, quietStore{lockedStore{newFakeStore()}}
		change(c, o)
	})
	s.base = s.started()
	return s
}

// as sends a request of a principal, which ends with the context.
func (s *shared) as(ctx context.Context, principal, method, path, body string) (status int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
	require.NoError(s.t, err)
	r.Header.Set("Authorization", "Bearer "+s.issuer.of(principal))
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		require.ErrorIs(s.t, err, ctx.Err())
		return 0, ""
	}
	if resp.StatusCode == http.StatusOK && strings.HasSuffix(path, "/stream") {
		s.t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode, ""
	}
	all, err := io.ReadAll(resp.Body)
	require.NoError(s.t, resp.Body.Close())
	if ctx.Err() == nil {
		require.NoError(s.t, err)
	}
	return resp.StatusCode, string(all)
}

// slow begins a request whose body does not arrive.
func (s *shared) slow(principal, path string, length int) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Addr().String())
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{",
		path, s.issuer.of(principal), length)
	require.NoError(s.t, err)
}

// Each thing that requests share is taken by one principal as far as it can: it is told so,
// and another one is served.
func TestOnePrincipalLeavesTheOthersTheirShare(t *testing.T) {
	t.Parallel()
	long := strings.Replace(goodBody, `"context":{`, `"context":{"x":"`+strings.Repeat("a", 30_000)+`",`, 1) + "}"
	cases := map[string]struct {
		change func(*rest.Config, *rest.Orchestrator)
		take   func(*shared)
		path   string
		body   string
		told   string
	}{
		"batches": {
			take: func(s *shared) {
				for range 24 { // connections that send nothing more
					s.slow("ana", batchPath, 1000)
				}
			},
			path: batchPath, body: batchOf(goodBody + "}"), told: `\"token ana\" uses its share of the batches: 2 of 4`,
		},
		"bytes of bodies": {
			change: func(c *rest.Config, _ *rest.Orchestrator) { c.BodyBudget = 80_000 },
			take: func(s *shared) {
				s.slow("ana", "/v1/tasks", 39_000)
				require.Eventually(s.t, func() bool { return testutil.ToFloat64(s.metrics.WebBudgetHeld.WithLabelValues("bodies")) > 0 },
					30*time.Second, time.Millisecond)
			},
			path: "/v1/tasks", body: long, told: `\"token ana\" uses its share of the bytes of bodies: 40000 of 80000`,
		},
		"streams": {
			change: func(_ *rest.Config, o *rest.Orchestrator) { o.MaxEventStreams = 2 },
			take: func(s *shared) {
				status, _ := s.as(s.t.Context(), "ana", http.MethodGet, "/v1/events/stream", "")
				require.Equal(s.t, http.StatusOK, status)
			},
			path: "/v1/events/stream", told: `\"token ana\" uses its share of the streams: 1 of 2`,
		},
	}
	for what, c := range cases {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if c.change == nil {
				c.change = func(*rest.Config, *rest.Orchestrator) {}
			}
			s := newShared(t, c.change)
			c.take(s)
			method := http.MethodPost
			if c.body == "" {
				method = http.MethodGet
			}
			status, _ := s.as(t.Context(), "ben", method, c.path, c.body)
			require.Equal(t, http.StatusOK, status, "others are served")
			status, text := s.as(t.Context(), "ana", method, c.path, c.body)
			require.Equal(t, http.StatusTooManyRequests, status, text)
			require.Contains(t, text, "SHARE_EXCEEDED")
			require.Contains(t, text, c.told)
			require.Positive(t, testutil.ToFloat64(s.metrics.SharesRefused.WithLabelValues(strings.ReplaceAll(what, " ", "_"))))
		})
	}
}

// A body of more than the share would be all that others have.
func TestABodyIsNoLargerThanTheShare(t *testing.T) {
	t.Parallel()
	s := newShared(t, func(c *rest.Config, _ *rest.Orchestrator) { c.BodyBudget = 80_000 })
	body := batchOf(strings.Repeat(" ", 41_000))
	status, text := s.as(t.Context(), "ana", http.MethodPost, batchPath, body)
	require.Equal(t, http.StatusRequestEntityTooLarge, status, text)
	require.Contains(t, text, "40000")
}

// A principal whose requests wait for tasks is answered at once from its share on.
func TestOnePrincipalLeavesTheOthersTheirWait(t *testing.T) {
	t.Parallel()
	s := newShared(t, func(c *rest.Config, _ *rest.Orchestrator) { c.MaxWaiting = 2 })
	path := "/v1/tasks/" + taskID.String() + "?wait=1m"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.as(ctx, "ana", http.MethodGet, path, "") }()
	refused := s.metrics.SharesRefused.WithLabelValues("waiting_requests")
	require.Eventually(t, func() bool {
		brief, over := context.WithTimeout(ctx, 50*time.Millisecond)
		defer over()
		status, _ := s.as(brief, "ana", http.MethodGet, path, "")
		return status == http.StatusOK
	}, 30*time.Second, time.Millisecond, "answered at once")
	require.Positive(t, testutil.ToFloat64(refused))
	brief, over := context.WithTimeout(ctx, 300*time.Millisecond)
	defer over()
	status, _ := s.as(brief, "ben", http.MethodGet, path, "")
	require.Zero(t, status, "it waits")
	cancel()
	await(t, done)
}

// fullStore has as many consumers of a namespace as it may have.
type fullStore struct {
	quietStore
	told *store.ConsumerBounds
}

func (s fullStore) CreateEventConsumer(_ context.Context, def store.EventConsumer, _ store.EventPlace, most store.ConsumerBounds, _ store.OperatorAction) (store.EventConsumer, error) {
	*s.told = most
	if def.Namespace == "shapes" {
		return def, store.ErrNamespaceConsumers
	}
	return def, nil
}

// One namespace cannot take all consumers.
func TestANamespaceHasItsShareOfTheConsumers(t *testing.T) {
	t.Parallel()
	var told store.ConsumerBounds
	s := newShared(t, func(_ *rest.Config, o *rest.Orchestrator) {
		o.MaxEventConsumers = 8
		o.Store = fullStore{quietStore{lockedStore{newFakeStore()}}, &told}
	})
	status, text := s.as(t.Context(), "ana", http.MethodPost, "/v1/event-consumers", `{"name":"a","namespace":"shapes"}`)
	require.Equal(t, http.StatusTooManyRequests, status, text)
	require.Contains(t, text, `\"namespace shapes\" uses its share of the event consumers: 4 of 8`)
	require.Equal(t, store.ConsumerBounds{All: 8, Namespace: 4}, told)
	status, text = s.as(t.Context(), "ana", http.MethodPost, "/v1/event-consumers", `{"name":"a","namespace":"solids"}`)
	require.Equal(t, http.StatusOK, status, text)
	require.InDelta(t, 1, testutil.ToFloat64(s.metrics.SharesRefused.WithLabelValues("event_consumers")), 0)
}
