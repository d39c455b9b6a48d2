package rest_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/api/rest"
)

// sent is the status of a request over a connection of the server, and its body.
func sent(t *testing.T, s *rest.Server, method, path, host string, header ...string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+path, strings.NewReader(`{}`))
	require.NoError(t, err)
	r.Host = host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
	require.Empty(t, answer.Header.Get("Strict-Transport-Security"), "without TLS")
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

func started(t *testing.T, change func(*rest.Config)) *rest.Server {
	t.Helper()
	h := newHouse(t, func(c *rest.Config, _ *rest.Orchestrator) { change(c) })
	require.NoError(t, h.server.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, h.server.Stop(context.Background())) })
	return h.server
}

// TestNoPageReachesADaemonUnderItsOwnName, whose name leads to a loopback address.
func TestNoPageReachesADaemonUnderItsOwnName(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	token := []string{"Authorization", "Bearer " + i.token(nil, "tasks:list", "system:read")}
	for name, tt := range map[string]struct {
		change func(*rest.Config)
		header []string
		want   map[string]int // by Host
	}{
		"without access on loopback": {func(*rest.Config) {}, nil, map[string]int{"evil.example": 403, "evil.example:80": 403, "localhost.evil.example": 403, "10.0.0.1": 403,
			"localhost": 200, "LOCALHOST.:8080": 200, "127.1.2.3:1": 200, "[::1]:8080": 200, "": 200}},
		"without access elsewhere": {func(c *rest.Config) { c.Address = ":0" }, nil, map[string]int{"evil.example": 200, "tasker": 200}},
		"with names":               {func(c *rest.Config) { c.Address, c.Access.Hosts = ":0", []string{"Tasker.example"} }, nil, map[string]int{"evil.example": 403, "tasker.example:443": 200, "localhost": 200}},
		"with access":              {func(c *rest.Config) { c.Access = i.access() }, token, map[string]int{"evil.example": 200}},
		"with access and names": {func(c *rest.Config) { c.Access = i.access(); c.Access.Hosts = []string{"tasker.example"} }, token,
			map[string]int{"evil.example": 403, "tasker.example": 200}},
		"without enforcement": {func(c *rest.Config) { c.Access = i.access(); c.Access.LogOnly = true }, nil, map[string]int{"evil.example": 403}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := started(t, tt.change)
			for host, want := range tt.want {
				for _, path := range []string{"/v1/tasks", "/metrics", "/health/detailed", "/api-docs/ui", "/"} {
					if path == "/metrics" && want == 200 {
						continue // the house has none
					}
					status, body := sent(t, s, http.MethodGet, path, host, tt.header...)
					require.Equal(t, want, status, "%s of %q: %.200s", path, host, body)
				}
				for _, probe := range []string{"/health", "/health/live", "/health/accepting"} {
					status, _ := sent(t, s, http.MethodGet, probe, host)
					require.Equal(t, 200, status, "%s of %q", probe, host)
				}
			}
		})
	}
}

// TestPagesOfOtherOriginsChangeNothing where browsers need not add credentials.
func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	foreign := []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}
	older := []string{"Origin", "http://localhost:3000"} // another port of this machine, and a browser that says no more
	trusted := []string{"Origin", "https://ops.example", "Sec-Fetch-Site", "same-site"}
	const own = "http://localhost:8080"
	for name, tt := range map[string]struct {
		change                         func(*rest.Config)
		foreign, older, trusted, admin int
	}{
		"without access":  {func(*rest.Config) {}, 403, 403, 403, 403},
		"anywhere":        {func(c *rest.Config) { c.Address = ":0" }, 403, 403, 403, 403},
		"with an origin":  {func(c *rest.Config) { c.Access.Origins = []string{"https://ops.example"} }, 403, 403, 415, 403},
		"with all":        {func(c *rest.Config) { c.Access.Origins = []string{"*"} }, 415, 415, 415, 403},
		"with access":     {func(c *rest.Config) { c.Access = i.access() }, 401, 401, 401, 401},
		"not enforced":    {func(c *rest.Config) { c.Access = i.access(); c.Access.LogOnly = true }, 403, 403, 403, 403},
		"behind a tunnel": {func(c *rest.Config) { c.Access.Hosts = []string{"tasker.example"} }, 403, 403, 403, 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := started(t, tt.change)
			for _, ask := range []struct {
				method, path string
				header       []string
				want         int
			}{
				{http.MethodPost, "/v1/tasks", foreign, tt.foreign}, {http.MethodPost, "/v1/tasks", older, tt.older},
				{http.MethodPost, "/v1/tasks", trusted, tt.trusted}, {http.MethodPut, "/v1/admin/deployment-mode", trusted, tt.admin},
			} {
				status, body := sent(t, s, ask.method, ask.path, "localhost:8080", ask.header...)
				require.Equal(t, ask.want, status, "%v: %.200s", ask.header, body)
			}
			for _, header := range [][]string{nil, {"Origin", own}, {"Origin", own, "Sec-Fetch-Site", "same-origin"}} {
				status, _ := sent(t, s, http.MethodPost, "/v1/tasks", "localhost:8080", header...)
				require.NotEqual(t, 403, status, "%v", header)
			}
			status, _ := sent(t, s, http.MethodGet, "/health/live", "localhost:8080", foreign...)
			require.Equal(t, 200, status, "what changes nothing")
		})
	}
}
