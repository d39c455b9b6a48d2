package cookbook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/sweep"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 30 * time.Second

// start runs an engine with the template of a file, in which texts are replaced, such as
// waits of days.
func start(t *testing.T, file string, register func(w *worker.Worker) error, replaced ...string) *enginetest.Engine {
	t.Helper()
	source, err := os.ReadFile(file)
	require.NoError(t, err)
	for i := 0; i < len(replaced); i += 2 {
		require.Contains(t, string(source), replaced[i])
	}
	edited := strings.NewReplacer(replaced...).Replace(string(source))
	return enginetest.Start(t, func(w *worker.Worker) error {
		return errors.Join(enginetest.RegisterTemplates(w, edited), register(w))
	}, func(c *orchestration.Config, _ *worker.Config) { c.DeadLetters = true })
}

// call sends a request to a handler.
func call(t *testing.T, h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))
	return w
}

func tasksOf(t *testing.T, e *enginetest.Engine) int {
	t.Helper()
	return e.DB.QueryInt(t, `select count(*) from tasker.tasks`)
}

func step(t *testing.T, task *store.Task, name string) *store.Step {
	t.Helper()
	for i := range task.Steps {
		if task.Steps[i].Name == name {
			return &task.Steps[i]
		}
	}
	require.Fail(t, "no step "+name)
	return nil
}

// A second delivery of an event finds the task of the first, also after its end.
func TestWebhook(t *testing.T) {
	t.Parallel()
	e := start(t, "webhook.yaml", func(w *worker.Worker) error {
		return w.Register("webhook.book", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			return worker.Field[int](ctx, "cents")
		}))
	})
	receive := receivePayment(client.New(e.API()))
	const event = `{"id": "evt_1", "cents": 1200}`
	first := call(t, receive, http.MethodPost, "/", event)
	require.Equal(t, http.StatusOK, first.Code, first.Body)
	id, err := uuid.Parse(first.Header().Get("Task"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"book": "1200"}, enginetest.Results(e.Await(id)))
	require.Equal(t, id.String(), call(t, receive, http.MethodPost, "/", event).Header().Get("Task"))
	require.Equal(t, 1, tasksOf(t, e))
	require.NotEqual(t, id.String(), call(t, receive, http.MethodPost, "/", `{"id": "evt_2", "cents": 1}`).Header().Get("Task"))
	require.Equal(t, http.StatusBadRequest, call(t, receive, http.MethodPost, "/", `{}`).Code)
}

// The reports run at half past two of each zone, and none while the one before runs.
func TestNightly(t *testing.T) {
	t.Parallel()
	begun, release := make(chan string, 10), make(chan struct{})
	e := start(t, "nightly.yaml", func(w *worker.Worker) error {
		return w.Register("reports.write", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			zone, err := worker.Field[string](ctx, "zone")
			begun <- zone
			<-release
			return zone, err
		}))
	})
	c := client.New(e.API())
	zones := map[string]string{"zurich": "Europe/Zurich", "tokyo": "Asia/Tokyo"}
	for range 2 { // the second start of the program finds them
		require.NoError(t, scheduleReports(t.Context(), c, zones))
	}
	for name, zone := range zones {
		at := e.DB.QueryString(t, `select to_char(next_run_at at time zone time_zone, 'HH24:MI') || ' ' || time_zone
			from tasker.schedules where name = $1`, "report-"+name)
		require.Equal(t, "02:30 "+zone, at)
	}
	at := time.Now().Truncate(time.Second)
	due := func(why, done string) {
		at = at.Add(-time.Second) // another run
		e.DB.Exec(t, `update tasker.schedules set next_run_at = $1 where name = 'report-tokyo'`, at)
		e.Bus.Publish(signal.Signal{Topic: signal.TopicDue})
		pgtest.Eventually(t, patience, func() (bool, string) {
			return e.DB.QueryBool(t, `select next_run_at > now() and `+done+` from tasker.schedules where name = 'report-tokyo'`), why
		})
	}
	due("the first run is not made", "last_error is null")
	require.Equal(t, "Asia/Tokyo", <-begun)
	due("the second run is not skipped", "last_error like '%still alive%'")
	require.Equal(t, 1, tasksOf(t, e))
	close(release)
	e.Await(uuid.MustParse(e.DB.QueryString(t, `select task_uuid::text from tasker.tasks`)))
	due("the third run is not made", "last_error is null")
	require.Equal(t, 2, tasksOf(t, e))
}

// An attempt that fails in the middle is followed by one that begins at the checkpoint.
func TestImport(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var reads []int
	written, failed := map[string]int{}, false
	i := &importer{
		read: func(_ context.Context, from, limit int) (rows []string, _ error) {
			mu.Lock()
			defer mu.Unlock()
			reads = append(reads, from)
			for n := from; n < min(from+limit, 2500); n++ {
				rows = append(rows, fmt.Sprint("row ", n))
			}
			return rows, nil
		},
		write: func(_ context.Context, from int, rows []string) error {
			mu.Lock()
			defer mu.Unlock()
			if from == 1000 && !failed {
				failed = true
				return errors.New("the table is locked")
			}
			for _, row := range rows {
				written[row]++
			}
			return nil
		},
	}
	e := start(t, "import.yaml", func(w *worker.Worker) error { return worker.Handle(w, "rows.import", i.run) })
	task := e.Run("cookbook", "import_rows", `{}`)
	require.Equal(t, map[string]string{"import": "2500"}, enginetest.Results(task))
	require.Equal(t, []int{0, 1000, 1000, 2000, 2500}, reads)
	require.Equal(t, 2, step(t, task, "import").Attempts, "only the failure begins another attempt")
	require.Len(t, written, 2500)
	for row, times := range written {
		require.Equal(t, 1, times, row)
	}
}

// Of each customer two parts are sent at once, over all tasks; of two customers four.
func TestStatements(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	running, most, keys := map[string]int{}, map[string]int{}, map[string]bool{}
	release := make(chan struct{})
	s := &statements{send: func(_ context.Context, customer, key string, _ int64) error {
		mu.Lock()
		keys[key] = true
		running[customer]++
		most[customer] = max(most[customer], running[customer])
		mu.Unlock()
		<-release
		mu.Lock()
		defer mu.Unlock()
		running[customer]--
		return nil
	}}
	e := start(t, "statements.yaml", func(w *worker.Worker) error {
		return errors.Join(worker.Handle(w, "statements.split", s.split), worker.Handle(w, "statements.send", s.part),
			w.Register("statements.sum", worker.HandlerFunc(s.sum)))
	})
	var tasks []uuid.UUID
	for _, input := range []string{
		`{"customer": "ann", "accounts": 60}`, `{"customer": "ann", "accounts": 50}`, `{"customer": "ben", "accounts": 45}`,
	} {
		tasks = append(tasks, e.Submit("cookbook", "send_statements", input))
	}
	pgtest.Eventually(t, patience, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return running["ann"] == 2 && running["ben"] == 2, fmt.Sprint(running)
	})
	close(release)
	for i, sent := range []int{60, 50, 45} {
		task := e.Await(tasks[i])
		require.JSONEq(t, fmt.Sprintf(`{"sent": %d, "missing_batches": 0}`, sent), enginetest.Results(task)["sum"])
	}
	require.Equal(t, map[string]int{"ann": 2, "ben": 2}, most)
	require.Len(t, keys, 60+50+45, "each account has its own key")
}

// The link of the mail shows the question; its button lets the task continue, once.
func TestApprovalByMail(t *testing.T) {
	t.Parallel()
	var c *client.Client
	ready, links := make(chan struct{}), make(chan string, 10)
	e := start(t, "discount.yaml", func(w *worker.Worker) error {
		return errors.Join(
			w.Register("discount.mail", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
				<-ready
				a := &approvals{tasker: c, mail: func(_ context.Context, link, _ string) error {
					links <- link
					return nil
				}}
				return a.send(ctx)
			})),
			w.Register("discount.grant", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "granted", nil })))
	})
	c = client.New(e.API())
	close(ready)
	id := e.Submit("cookbook", "discount", `{}`)
	web := http.NewServeMux()
	web.Handle("/approvals/{token}", approvalPage(c))
	link := strings.TrimPrefix(<-links, "https://shop.example")
	for range 2 { // a scanner follows the link before the reader does
		require.Contains(t, call(t, web, http.MethodGet, link, "").Body.String(), "Is the discount fine?")
	}
	require.Equal(t, workflow.StepPending, step(t, e.Read(id), "grant").State)
	require.Equal(t, http.StatusOK, call(t, web, http.MethodPost, link, "").Code)
	require.Equal(t, `"granted"`, enginetest.Results(e.Await(id))["grant"])
	require.Equal(t, http.StatusGone, call(t, web, http.MethodPost, link, "").Code)
}

// A newer revision of a document cancels the older one; another document continues.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	begun, release := make(chan string, 10), make(chan struct{})
	p := &previews{render: func(ctx context.Context, document string, revision int) (string, error) {
		begun <- fmt.Sprint(document, revision)
		select {
		case <-release:
			return fmt.Sprint("preview of ", document, revision), nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}}
	e := start(t, "preview.yaml", func(w *worker.Worker) error { return worker.Handle(w, "preview.render", p.run) })
	render := func(document string, revision int) uuid.UUID {
		id := e.Submit("cookbook", "render_preview", fmt.Sprintf(`{"document": %q, "revision": %d}`, document, revision))
		require.Equal(t, fmt.Sprint(document, revision), <-begun)
		return id
	}
	other, first, second := render("b", 1), render("a", 1), render("a", 2)
	require.Equal(t, workflow.TaskCancelled, e.Await(first).State)
	close(release)
	require.Equal(t, `"preview of a2"`, enginetest.Results(e.Await(second))["render"])
	require.Equal(t, workflow.TaskComplete, e.Await(other).State)
}

// answering serves one answer after the other, and notes when each was asked for.
func answering(t *testing.T, answers ...http.HandlerFunc) (server *httptest.Server, asked func() []time.Time) {
	t.Helper()
	var mu sync.Mutex
	var times []time.Time
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n := min(len(times), len(answers)-1)
		times = append(times, time.Now())
		mu.Unlock()
		answers[n](w, r)
	}))
	t.Cleanup(server.Close)
	return server, func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return times
	}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// The next attempt comes when the service has asked for it, not by the backoff.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	server, asked := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	p := &pages{http: server.Client()}
	e := start(t, "quota.yaml", func(w *worker.Worker) error { return worker.Handle(w, "pages.fetch", p.fetch) },
		"backoff_base_ms: 1000", "backoff_base_ms: 3600000, max_backoff_ms: 3600000")
	task := e.Run("cookbook", "fetch_page", fmt.Sprintf(`{"url": %q}`, server.URL))
	require.Equal(t, "5", enginetest.Results(task)["fetch"])
	require.Len(t, asked(), 2)
	require.GreaterOrEqual(t, asked()[1].Sub(asked()[0]), time.Second)
}

// An attempt that fails behind its update leaves no trace; the account is booked once.
func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	e := start(t, "booking.yaml", func(w *worker.Worker) error {
		return worker.HandleTx(w, "accounts.book", func(ctx *worker.StepContext, tx worker.Tx, in booking) (int64, error) {
			balance, err := book(ctx, tx, in)
			if err == nil && ctx.Attempt() == 1 {
				err = fmt.Errorf("the worker fails with the balance %d", balance)
			}
			return balance, err
		})
	})
	e.DB.Exec(t, `create table accounts (name text primary key, cents bigint)`)
	e.DB.Exec(t, `insert into accounts values ('ann', 100)`)
	task := e.Run("cookbook", "book_amount", `{"account": "ann", "cents": 20}`)
	require.Equal(t, "120", enginetest.Results(task)["book"])
	require.Equal(t, 2, step(t, task, "book").Attempts)
	require.Equal(t, 120, e.DB.QueryInt(t, `select cents from accounts`))
}

// The order and its task exist together or not at all.
func TestOwnTransaction(t *testing.T) {
	t.Parallel()
	e := start(t, "order.yaml", func(w *worker.Worker) error {
		return w.Register("orders.process", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			return worker.Field[int](ctx, "order")
		}))
	})
	e.DB.Exec(t, `create table orders (id bigint primary key, customer text not null check (customer <> ''))`)
	s := &shop{pool: e.DB.Pool(t), tasks: pgclient.New(pgclient.AnnounceNotify)}
	require.Error(t, s.placeOrder(t.Context(), 6, ""), "the check of the table")
	require.Zero(t, tasksOf(t, e))
	require.NoError(t, s.placeOrder(t.Context(), 7, "ann"))
	id := uuid.MustParse(e.DB.QueryString(t, `select task_uuid::text from tasker.tasks`))
	require.Equal(t, "7", enginetest.Results(e.Await(id))["process"])
	e.DB.Exec(t, `delete from orders`)
	var duplicate *pgclient.DuplicateError
	require.ErrorAs(t, s.placeOrder(t.Context(), 7, "ann"), &duplicate)
	require.Zero(t, e.DB.QueryInt(t, `select count(*) from orders`), "the order is not there without its task")
}

// A payment that fails for good releases the seat, and the task ends as error.
func TestUndo(t *testing.T) {
	t.Parallel()
	released := make(chan string, 10)
	s := &tickets{
		reserve: func(_ context.Context, seat, _ string) (string, error) { return "reservation of " + seat, nil },
		charge: func(context.Context, string, string) error {
			return worker.Permanent(errors.New("the card is declined"))
		},
		release: func(_ context.Context, reservation string) error {
			released <- reservation
			return nil
		},
	}
	e := start(t, "undo.yaml", func(w *worker.Worker) error {
		return errors.Join(worker.Handle(w, "tickets.reserve", s.reserved),
			w.Register("tickets.charge", worker.HandlerFunc(s.charged)),
			w.Register("tickets.release", worker.HandlerFunc(s.released)))
	})
	task := e.Run("cookbook", "sell_ticket", `{"seat": "4A"}`)
	require.Equal(t, workflow.TaskError, task.State)
	require.Equal(t, "reservation of 4A", <-released)
	require.Equal(t, workflow.StepComplete, step(t, task, "release").State)
}

// A payment ends the wait, also one that came before it, and so does the time.
func TestPayment(t *testing.T) {
	t.Parallel()
	register := func(w *worker.Worker) error { return w.Register("orders.finish", worker.HandlerFunc(finish)) }
	t.Run("paid", func(t *testing.T) {
		t.Parallel()
		e := start(t, "payment.yaml", register)
		c := client.New(e.API())
		for range 2 { // the second delivery has no effect
			require.NoError(t, paymentReceived(t.Context(), c, "o-1", "p-1", 1200))
		}
		task := e.Run("cookbook", "paid_order", `{"order": "o-1"}`)
		require.Equal(t, `"ship it: 1200 cents"`, enginetest.Results(task)["finish"])
	})
	t.Run("not paid", func(t *testing.T) {
		t.Parallel()
		e := start(t, "payment.yaml", register, "timeout: 3d", "timeout: 1s")
		task := e.Run("cookbook", "paid_order", `{"order": "o-1"}`)
		require.Equal(t, `"cancel the order"`, enginetest.Results(task)["finish"])
	})
}

// A 5xx is tried again; a 4xx ends the task at once.
func TestSlowService(t *testing.T) {
	t.Parallel()
	broken, failures := answering(t, status(http.StatusBadGateway), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"score": 7}`)
	})
	refusing, refusals := answering(t, status(http.StatusUnprocessableEntity))
	s := &scores{http: &http.Client{}}
	t.Cleanup(s.http.CloseIdleConnections)
	e := start(t, "slow.yaml", func(w *worker.Worker) error { return worker.Handle(w, "customers.score", s.score) },
		"backoff_base_ms: 2000", "backoff_base_ms: 10")
	good := e.Run("cookbook", "score_customer", fmt.Sprintf(`{"url": %q}`, broken.URL))
	require.JSONEq(t, `{"score": 7}`, enginetest.Results(good)["score"])
	require.Len(t, failures(), 2)
	bad := e.Run("cookbook", "score_customer", fmt.Sprintf(`{"url": %q}`, refusing.URL))
	require.Equal(t, workflow.TaskError, bad.State)
	require.Len(t, refusals(), 1)
	require.Contains(t, string(step(t, bad, "score").Error), `"http_status": 422`)
}

// Ten saves of a document are one rebuild, of the last revision.
func TestDebounce(t *testing.T) {
	t.Parallel()
	rebuilt := make(chan int, 20)
	e := start(t, "rebuild.yaml", func(w *worker.Worker) error {
		return w.Register("index.rebuild", worker.HandlerFunc(func(ctx *worker.StepContext) (any, error) {
			revision, err := worker.Field[int](ctx, "revision")
			rebuilt <- revision
			return revision, err
		}))
	})
	c := client.New(e.API())
	for revision := range 10 {
		require.NoError(t, saved(t.Context(), c, "a", revision))
	}
	require.Equal(t, 1, tasksOf(t, e))
	require.Equal(t, 9, <-rebuilt)
	require.NoError(t, saved(t.Context(), c, "b", 0))
	require.Equal(t, 2, tasksOf(t, e), "another document has its own rebuild")
	require.Zero(t, <-rebuilt)
}

// A tenant that has used its places is told when the next one is free; others are not held up.
func TestThrottle(t *testing.T) {
	t.Parallel()
	e := start(t, "export.yaml", func(w *worker.Worker) error {
		return w.Register("data.export", worker.HandlerFunc(func(*worker.StepContext) (any, error) { return "exported", nil }))
	})
	c := client.New(e.API())
	for range 2 { // the burst
		wait, err := requestExport(t.Context(), c, "ann")
		require.NoError(t, err)
		require.Zero(t, wait)
	}
	wait, err := requestExport(t.Context(), c, "ann")
	require.NoError(t, err)
	require.Positive(t, wait)
	require.LessOrEqual(t, wait, 6*time.Second, "a place every 60 s / 10")
	wait, err = requestExport(t.Context(), c, "ben")
	require.NoError(t, err)
	require.Zero(t, wait)
	require.Equal(t, 3, tasksOf(t, e))
}

// A task that has not begun by its deadline is cancelled, with a dead letter.
func TestDeadline(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 10)
	e := start(t, "offer.yaml", func(w *worker.Worker) error {
		return w.Register("prices.quote", worker.HandlerFunc(func(*worker.StepContext) (any, error) {
			begun <- struct{}{}
			return 1, nil
		}))
	})
	c := client.New(e.API())
	inTime, err := quoteUntil(t.Context(), c, json.RawMessage(`{}`), time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.Equal(t, workflow.TaskComplete, e.Await(uuid.MustParse(inTime.TaskUUID)).State)
	<-begun

	require.NoError(t, e.Orchestrator.Pause(t.Context(), store.Pause{Namespace: "cookbook", Actor: "ana", Reason: "no one works"}))
	late, err := quoteUntil(t.Context(), c, json.RawMessage(`{}`), time.Now().Add(time.Hour))
	require.NoError(t, err)
	e.DB.Exec(t, `update tasker.board set deadline = clock_timestamp() - interval '1 s' where deadline is not null`)
	defaults, err := config.Defaults()
	require.NoError(t, err)
	sweeps, err := sweep.New(sweep.Config{
		Store: e.Store, Tasks: e.Orchestrator, Publisher: e.Bus, Holder: uuid.New(), Settings: defaults.Orchestration})
	require.NoError(t, err)
	_, err = sweeps.RunNow(t.Context(), "deadlines", false)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskCancelled, e.Await(uuid.MustParse(late.TaskUUID)).State)
	letter, err := e.Store.DeadLetterOfTask(t.Context(), uuid.MustParse(late.TaskUUID))
	require.NoError(t, err)
	require.Equal(t, store.ResolutionPending, letter.Resolution)
	require.Empty(t, begun)
}

// Each page is a task that names the next one, until the last page.
func TestNextPage(t *testing.T) {
	t.Parallel()
	read := make(chan int, 10)
	s := &table{rows: func(_ context.Context, from, limit int) (int, error) {
		read <- from
		return min(limit, 2500-from), nil
	}}
	e := start(t, "pages.yaml", func(w *worker.Worker) error { return worker.Handle(w, "pages.read", s.readPage) })
	first := e.Run("cookbook", "read_page", `{"from": 0}`)
	require.Equal(t, map[string]string{"read": "1000"}, enginetest.Results(first))
	require.Equal(t, []int{0, 1000, 2000}, []int{<-read, <-read, <-read})
	pgtest.Eventually(t, patience, func() (bool, string) {
		return e.DB.QueryInt(t, `select count(*) from tasker.board`) == 0, "not all tasks have ended"
	})
	require.Equal(t, 3, tasksOf(t, e))
	require.Empty(t, read)
}
