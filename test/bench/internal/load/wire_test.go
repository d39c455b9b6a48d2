package load

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWireKeepsItsConnection(t *testing.T) {
	t.Parallel()
	remotes := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotes[r.RemoteAddr] = true
		assert.Equal(t, "k", r.Header.Get("X-API-Key"))
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		if r.URL.Path == "/long" {
			for range 100 {
				_, _ = w.Write(body)
				w.(http.Flusher).Flush() // chunked
			}
			return
		}
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write(body)
	}))
	defer server.Close()
	wire, err := Dial(t.Context(), Server{URL: server.URL, Header: "X-API-Key: k"})
	require.NoError(t, err)
	defer wire.Close()
	for range 3 {
		status, body, err := wire.Post("/short", []byte(`{"a":1}`))
		require.NoError(t, err)
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, `{"a":1}`, string(body))
		status, body, err = wire.Post("/long", []byte(`xyz`))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, strings.Repeat("xyz", 100), string(body))
	}
	require.Len(t, remotes, 1)
}

func TestMixes(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 1, StepsPerTask(Plain), 1e-9)
	require.InDelta(t, 4, StepsPerTask(Orchestrated), 1e-9)
	require.InDelta(t, 2.5, StepsPerTask(Mixed), 1e-9)
	templates, err := Templates("a")
	require.NoError(t, err)
	require.Len(t, templates, 5)
}
