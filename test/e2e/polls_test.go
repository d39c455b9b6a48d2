package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// session is one of this program, which speaks the protocol itself: nothing of an SDK is
// measured.
type session struct {
	url   string // of the session
	after int64
}

// polled is what this program reads of an answer.
type polled struct {
	Answer int64
	Steps  []struct{ Fence string }
}

func openSession(t *testing.T, p *fleet.Process, callable string) *session {
	t.Helper()
	status, answer := send(t, http.MethodPost, p.URL+"/v1/sessions", fmt.Sprintf(`{"protocol": 1, "name": "e2e", "callables": [{"callable": %q}]}`, callable))
	require.Less(t, status, 300, answer)
	var opened struct {
		ID string `json:"session_id"`
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &opened))
	return &session{url: p.URL + "/v1/sessions/" + opened.ID}
}

// poll waits for what the daemon tells, at most as long as the daemon allows.
func (s *session) poll(ctx context.Context, web *http.Client) (p polled, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/poll?after=%d", s.url, s.after), http.NoBody)
	if err != nil {
		return p, err
	}
	req.Header["Idempotency-Key"] = nil // not sent: net/http repeats it where a kept connection was closed meanwhile
	res, err := web.Do(req)
	if err != nil {
		return p, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return p, fmt.Errorf("poll: %s", res.Status)
	}
	if err = json.NewDecoder(res.Body).Decode(&p); err == nil {
		s.after = p.Answer
	}
	return p, err
}

// heard is an answer with steps, or why there is none, and when it came.
type heard struct {
	polled
	at  time.Time
	err error
}

// listen polls until there is a step. It returns once the daemon has the first poll.
func (s *session) listen(ctx context.Context, web *http.Client) <-chan heard {
	sent, answer := make(chan struct{}), make(chan heard, 1)
	once := sync.OnceFunc(func() { close(sent) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }})
	go func() {
		defer once()
		for {
			p, err := s.poll(ctx, web)
			if len(p.Steps) > 0 || err != nil {
				answer <- heard{p, time.Now(), err}
				return
			}
		}
	}()
	<-sent
	return answer
}

// TestAWaitingPollHearsOfAStep prints the time from a client's request for a task to the
// answer of the poll that waits for its step. No daemon polls the database, so a signal
// ends the wait.
func TestAWaitingPollHearsOfAStep(t *testing.T) {
	rounds, bound := 40, time.Second
	if measuring() {
		rounds, bound = 2000, 3*time.Millisecond
	}
	c := newCounting(t, "EventDrivenOnly")
	c.oneStep("polled", "told")
	p := c.worker("polled", "EventDrivenOnly")
	c.ready()
	s := openSession(t, p, "told")
	took := make([]time.Duration, rounds)
	for n := range took {
		answer := s.listen(t.Context(), http.DefaultClient)
		doc, err := json.Marshal(taskOf("polled", "one", n))
		require.NoError(t, err)
		submitted := time.Now()
		status, body := send(t, http.MethodPost, c.all[0].URL+"/v1/tasks", string(doc))
		require.Less(t, status, 300, body)
		told := <-answer
		require.NoError(t, told.err)
		require.Len(t, told.Steps, 1)
		took[n] = told.at.Sub(submitted)
		status, body = send(t, http.MethodPost, s.url+"/reports", fmt.Sprintf(`{"reports": [{"fence": %q, "outcome": "success", "result": 1}]}`, told.Steps[0].Fence))
		require.Less(t, status, 300, body)
		require.Contains(t, body, `"rejected":[]`)
	}
	slices.Sort(took)
	t.Logf("from the request for a task to the answer of the poll that waits for its step, of %d: p50 %v, p95 %v", rounds, took[rounds/2], took[rounds*95/100])
	require.Less(t, took[rounds/2], bound)
	c.clean()
}

// TestIdlePollsCostNothing: sessions with nothing to do, a thousand where figures are
// wanted, wait in their daemon and not in the database.
func TestIdlePollsCostNothing(t *testing.T) {
	needs.All(t, "a minute without work")
	sessions, window := 100, 20*time.Second // two heartbeats, wherever it begins
	if measuring() {
		sessions, window = 1000, time.Minute
	}
	for _, mode := range []string{"EventDrivenOnly", "Hybrid"} {
		t.Run(mode, func(t *testing.T) {
			if !measuring() {
				t.Parallel()
			}
			c := newCounting(t, mode)
			c.oneStep("idle", "nothing")
			p := c.worker("idle", mode)
			c.ready()
			without, _ := c.idle(window)
			web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sessions}}
			defer web.CloseIdleConnections()
			ctx, stop := context.WithCancel(t.Context())
			var polling sync.WaitGroup
			defer polling.Wait()
			defer stop()
			answers := make(chan (<-chan heard), sessions)
			for range sessions {
				s := openSession(t, p, "nothing")
				polling.Go(func() { answers <- s.listen(ctx, web) })
			}
			c.present(p, sessions)
			with, all := c.idle(window)
			t.Logf("%d idle polls in %v: the worker daemon sent %d statements, and %d without sessions; the whole fleet %d", sessions, window, with, without, all)
			c.present(p, sessions)
			require.Less(t, with-without, int(window.Seconds()), "one statement per second more than without sessions")
			if mode == "EventDrivenOnly" {
				require.Less(t, with, int(window.Seconds()), "one statement per second in all")
			}
			stop()
			for range sessions {
				require.ErrorIs(t, (<-<-answers).err, context.Canceled, "each has waited until now")
			}
		})
	}
}

// idle returns the statements of the worker daemon in a quiet while, and of the whole fleet.
func (c counting) idle(window time.Duration) (worker, all int) {
	c.t.Helper()
	pgtest.Eventually(c.t, time.Minute, func() (bool, string) { // what has begun is over
		c.reset()
		wait(c.t, time.Second)
		n := c.calls("idle")
		return n <= 4, fmt.Sprintf("%d statements in a second", n)
	})
	c.reset()
	wait(c.t, window)
	worker = c.calls("idle")
	all = c.db.QueryInt(c.t, `select sum(calls)::int from pg_stat_statements s join pg_database d on d.oid = s.dbid
		where datname = current_database() and query !~ 'pg_stat_statements'`)
	return worker, all
}
