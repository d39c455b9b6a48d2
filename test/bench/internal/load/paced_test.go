package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPacedKeepsItsRate: late clients catch up, so the number of tasks follows from rate and
// time alone.
func TestPacedKeepsItsRate(t *testing.T) {
	t.Parallel()
	var made atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"task_uuid":"%d"}`, made.Add(1))
	}))
	defer server.Close()
	begin := time.Now()
	ids, err := NewCreator(Server{URL: server.URL}, Plain).Paced(t.Context(), 4, 200, 200*time.Millisecond)
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(begin), 190*time.Millisecond, "not all at once")
	require.Len(t, ids, 40)
	require.EqualValues(t, 40, made.Load())
	distinct := map[string]bool{}
	for _, id := range ids {
		distinct[id] = true
	}
	require.Len(t, distinct, 40)
}
