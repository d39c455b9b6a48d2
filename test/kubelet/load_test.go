//go:build kubelet

package kubelet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tasker-go/tasker/internal/lifecycle"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
	"github.com/tasker-go/tasker/test/kubelet"
)

// request is what a client has seen of one request.
type request struct {
	at     time.Time // of the answer
	status int       // 0: none
	retry  string    // Retry-After
	pod    string    // address of the one asked; empty: none
	task   string    // that was created
	err    error     // nil: the task was created
}

// client is how one of the load creates tasks.
type client struct {
	name  string
	grpc  bool
	keep  bool          // the connection; otherwise each request has its own
	pause time.Duration // after each answer
	tasks []string      // names of templates, in turn; default diamond
}

// load is what clients see.
type load struct {
	mu  sync.Mutex
	all []request
}

// drive creates tasks through the Service until ctx ends.
func (l *load) drive(ctx context.Context, k *kubelet.Kubelet, c client) {
	ask, end := c.overHTTP(k)
	if c.grpc {
		ask, end = c.overGRPC(k)
	}
	defer end()
	for n := 0; ctx.Err() == nil; n++ {
		name := "diamond"
		if len(c.tasks) > 0 {
			name = c.tasks[n%len(c.tasks)]
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		r := ask(limited, name, n)
		cancel()
		r.at = time.Now()
		l.mu.Lock()
		l.all = append(l.all, r)
		l.mu.Unlock()
		_ = lifecycle.Pause(ctx, c.pause) // the loop notices the end of ctx
	}
}

func (c client) overHTTP(k *kubelet.Kubelet) (ask func(ctx context.Context, name string, n int) request, end func()) {
	transport := &http.Transport{DialContext: k.Dial, DisableKeepAlives: !c.keep}
	to := &http.Client{Transport: transport}
	return func(ctx context.Context, name string, n int) (r request) {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { r.pod = host(i.Conn.RemoteAddr().String()) }})
		body := fmt.Sprintf(`{"namespace": "examples", "name": %q, "version": "1.0.0", "context": {"even_number": %d},
			"initiator": "load", "source_system": "test", "reason": "load", "idempotency_key": "%s-%d"}`, name, 2*n, c.name, n)
		post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://tasker:80/v1/tasks", strings.NewReader(body))
		if err != nil {
			return request{err: err}
		}
		post.Header.Set("Content-Type", "application/json")
		res, err := to.Do(post)
		if err != nil {
			var refused *net.OpError
			if errors.As(err, &refused) && refused.Addr != nil {
				r.pod = host(refused.Addr.String())
			}
			r.err = err
			return r
		}
		answer, err := io.ReadAll(res.Body)
		_ = res.Body.Close() // it was read
		r.status, r.retry, r.err = res.StatusCode, res.Header.Get("Retry-After"), err
		var task struct {
			UUID string `json:"task_uuid"`
		}
		switch {
		case err != nil:
		case r.status/100 != 2:
			r.err = fmt.Errorf("%s: %s", res.Status, answer)
		default:
			r.err = json.Unmarshal(answer, &task)
			r.task = task.UUID
		}
		return r
	}, transport.CloseIdleConnections
}

func (c client) overGRPC(k *kubelet.Kubelet) (ask func(ctx context.Context, name string, n int) request, end func()) {
	connect := func() (*grpc.ClientConn, error) {
		return grpc.NewClient("passthrough:///tasker:9190", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return k.Dial(ctx, "tcp", address) }))
	}
	kept, err := connect()
	return func(ctx context.Context, name string, n int) (r request) {
		to := kept
		if !c.keep && err == nil {
			to, err = connect()
			defer func() { _ = to.Close() }() // the answer is there
		}
		if err != nil {
			return request{err: err}
		}
		input, err := structpb.NewStruct(map[string]any{"even_number": 2 * n, "client": c.name})
		if err != nil {
			return request{err: err}
		}
		by := "load"
		res, err := taskerv1.NewTaskServiceClient(to).CreateTask(ctx, &taskerv1.CreateTaskRequest{Name: name, Namespace: "examples", Version: "1.0.0",
			Context: input, Initiator: &by, SourceSystem: &by, Reason: &by})
		r = request{err: err, task: res.GetTask().GetTaskUuid()}
		for _, detail := range status.Convert(err).Details() {
			switch d := detail.(type) {
			case *errdetails.ErrorInfo:
				r.status, _ = strconv.Atoi(d.GetMetadata()["http_status"]) // 0 is none
			case *errdetails.RetryInfo:
				r.retry = strconv.Itoa(int(d.GetRetryDelay().AsDuration().Seconds()))
			}
		}
		return r
	}, func() { _ = kept.Close() }
}

func host(address string) string {
	h, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return h
}

// under runs clients beside something, and returns what they have seen.
func under(ctx context.Context, k *kubelet.Kubelet, clients []client, do func(l *load) error) ([]request, error) {
	var l load
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	for _, c := range clients {
		group.Go(func() { l.drive(ctx, k, c) })
	}
	err := do(&l)
	cancel()
	group.Wait()
	return l.all, err
}

// rate is how many tasks were created per second from a moment on.
func (l *load) rate(from time.Time, d time.Duration) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.all {
		if r.err == nil && !r.at.Before(from) && r.at.Before(from.Add(d)) {
			n++
		}
	}
	return float64(n) / d.Seconds()
}

func failed(all []request) []request {
	return slices.DeleteFunc(slices.Clone(all), func(r request) bool { return r.err == nil })
}

// firsts are the errors of the first requests.
func firsts(failed []request) (list []string) {
	for _, r := range failed[:min(len(failed), 5)] {
		list = append(list, fmt.Sprintf("%s: %v", r.pod, r.err))
	}
	return list
}

// rows asks over a connection of its own, which no outage before has broken.
func rows(t *testing.T, dsn, sql string, each func(scan func(...any) error) error, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	found, err := conn.Query(ctx, sql, args...)
	require.NoError(t, err)
	defer found.Close()
	for found.Next() {
		require.NoError(t, each(found.Scan))
	}
	require.NoError(t, found.Err())
}

func count(t *testing.T, dsn, sql string, args ...any) (n int) {
	t.Helper()
	rows(t, dsn, sql, func(scan func(...any) error) error { return scan(&n) }, args...)
	return n
}

// books are what the database says in the end.
type books struct {
	requests, failed    int
	lost                int // tasks whose creation was answered
	unended, notPassed  int // tasks that live, or have not completed
	wasted, secondTimes int // executions beyond one for each step, and results
}

func (b books) String() string {
	return fmt.Sprintf("%d requests, %d failed; %d tasks lost, %d have not ended, %d not completed; %d executions beyond one for each step, %d second results",
		b.requests, b.failed, b.lost, b.unended, b.notPassed, b.wasted, b.secondTimes)
}

// settle waits for the end of all tasks.
func settle(t *testing.T, dsn string, all []request) (b books) {
	t.Helper()
	b.requests, b.failed = len(all), len(failed(all))
	var created []string
	for _, r := range all {
		if r.err == nil {
			created = append(created, r.task)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		b.unended = count(t, dsn, `select count(*) from tasker.board where slot = 0`)
		if b.unended == 0 || lifecycle.Pause(ctx, 200*time.Millisecond) != nil {
			break
		}
	}
	b.lost = count(t, dsn, `select count(*) from unnest($1::uuid[]) u where not exists (select from tasker.tasks where task_uuid = u)`, created)
	b.notPassed = count(t, dsn, `select count(*) from tasker.v_tasks where state <> 'complete'`)
	b.wasted = count(t, dsn, `select count(*) - count(distinct (task_uuid, step_no)) from tasker.step_attempts where claimed_at is not null`)
	b.secondTimes = count(t, dsn, `select count(*) from (select from tasker.step_attempts where outcome = 1 group by task_uuid, step_no having count(*) > 1) d`)
	return b
}

// whole says that nothing was lost, and nothing done twice.
func (b books) whole() bool {
	return b.requests > 0 && b.lost == 0 && b.unended == 0 && b.notPassed == 0 && b.secondTimes == 0
}
