//go:build linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/fleet"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// mostMemory bounds the memory of an orchestrator under the loads below, in bytes.
// Without the budget of bodies 96 creations take 6 MB each, without that of answers 20
// lists with contexts take 600 MB.
const mostMemory = 300 << 20

// loads are the numbers of concurrent requests.
func loads() (creations, lists int) {
	if pgtest.FullSize() {
		return 256, 3000
	}
	return 96, 1000
}

// random is a text of nearly 1 MiB that cannot be compressed.
var random = sync.OnceValue(func() string {
	source := rand.New(rand.NewPCG(1, 1)) // #nosec G404 -- no secrets
	text := make([]byte, 1_030_000)
	for i := range text {
		text[i] = 'a' + byte(source.IntN(26)) // #nosec G115 -- small
	}
	return string(text)
})

// largeTask is a creation of nearly 1 MiB of incompressible texts of 8 kB. Those of
// another n start elsewhere in the same random text.
func largeTask(n int) string {
	var b strings.Builder
	b.Grow(len(random()) + 1<<12)
	fmt.Fprintf(&b, `{"name":"large","namespace":"memory","version":"1.0.0","initiator":"i","source_system":"s","reason":"r","context":{"n":%d,"texts":[""`, n)
	text := random()[n*1000:] + random()[:n*1000]
	for piece := range slices.Chunk([]byte(text), 8000) {
		b.WriteString(`,"`)
		b.Write(piece)
		b.WriteString(`"`)
	}
	b.WriteString("]}}")
	return b.String()
}

// parallel sends n requests at once and counts the answers by status. Rejections must
// have a Retry-After.
func parallel(t *testing.T, n int, client *http.Client, request func(i int) (method, url, body string)) map[int]int {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	counts, problems := map[int]int{}, []string{}
	for i := range n {
		group.Go(func() {
			method, url, body := request(i)
			status, retry, err := one(t.Context(), client, method, url, body)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				problems = append(problems, err.Error())
			case status == http.StatusServiceUnavailable && retry == "":
				problems = append(problems, "503 without Retry-After")
			}
			counts[status]++
		})
	}
	group.Wait()
	require.Empty(t, problems)
	return counts
}

func one(ctx context.Context, client *http.Client, method, url, body string) (status int, retry string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	return answer.StatusCode, answer.Header.Get("Retry-After"), err
}

// peak is the peak memory of a process, in bytes.
func peak(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	require.True(t, found)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kib << 10
}

// TestMemoryOfRequestsIsBounded: for any number of large requests, each is answered or
// gets Retry-After, the daemon stays ready, and its memory stays within its budgets.
func TestMemoryOfRequestsIsBounded(t *testing.T) {
	needs.All(t, "hundreds of large tasks")
	db := enginetest.Migrated(t)
	r := newFleet(t, db)
	p := r.start(fleet.Orchestrator, "Hybrid", "")
	r.ready()
	template, _, err := template.Parse("large.yaml", []byte("name: large\nnamespace_name: memory\nversion: 1.0.0\nsteps:\n  - {name: s, handler: {callable: s}}\n"))
	require.NoError(t, err)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.RegisterTemplates(t.Context(), store.Registrant{ID: "test"}, []*workflow.Template{template.Resolve("test")})
	require.NoError(t, err)

	var unready, asked atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond) // takes time: a prober that leaves the machine to the requests
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			status, _, err := one(ctx, http.DefaultClient, http.MethodGet, p.URL+"/health/ready", "")
			if err == nil && status != http.StatusOK {
				unready.Add(1)
			}
			asked.Add(1)
		}
	})
	many := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300}}
	idle := peak(t, p.PID())
	report := func(what string, counts map[int]int) {
		t.Helper()
		t.Logf("%s: %v; most memory so far %d MB", what, counts, peak(t, p.PID())>>20)
		require.Equal(t, len(counts), map[bool]int{true: 1}[counts[200] > 0]+map[bool]int{true: 1}[counts[503] > 0], "only 200 and 503: %v", counts)
	}
	creations, lists := loads()
	bodies := make([]string, creations)
	for i := range bodies {
		bodies[i] = largeTask(i)
	}
	report(fmt.Sprint(creations, " parallel creations of 1 MiB"), parallel(t, creations, many, func(i int) (string, string, string) {
		return http.MethodPost, p.URL + "/v1/tasks", bodies[i]
	}))
	require.Positive(t, db.QueryInt(t, `select count(*) from tasker.tasks`))
	list := func(query string) func(int) (string, string, string) {
		return func(int) (string, string, string) { return http.MethodGet, p.URL + "/v1/tasks" + query, "" }
	}
	hundreds := parallel(t, 20, many, list("?per_page=100"))
	report("20 parallel lists of 100", hundreds)
	require.Equal(t, map[int]int{200: 20}, hundreds)
	report("20 parallel lists of 10 with contexts", parallel(t, 20, many, list("?per_page=10&include=context")))
	report(fmt.Sprint(lists, " parallel lists"), parallel(t, lists, many, list("")))
	stop()
	watching.Wait()
	t.Logf("ready in all but %d of %d answers; %d MB at the start, %d MB at most", unready.Load(), asked.Load(), idle>>20, peak(t, p.PID())>>20)
	require.Zero(t, unready.Load())
	require.Less(t, peak(t, p.PID()), mostMemory)
}
