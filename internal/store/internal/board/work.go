package board

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
	"github.com/tasker-go/tasker/signal"
)

// Work is a transaction of a handler. Its last statement is the report of the handler's
// step, with the same fence as any report; so the handler's writes and the end of its
// step are committed together or not at all.
//
// That last statement locks the row of the step, and nothing before does. Until then
// heartbeats extend the lease, and operators may call the step off; the report detects
// both. From then to the commit, a round trip later, others wait for the row or skip it.
// The product waits for rows of this transaction while holding the row of the step in one
// case only: tasks with the same identity as one created here (see CreateTasksIn), and
// those transactions hold no rows of steps. So it cannot deadlock with them; with another
// handler that locks the user's rows in another order it can, and then fails as any
// transaction does.
//
// It belongs to the goroutine of the handler, except Cut.
type Work struct {
	pool    *WorkPool
	db      *pg.Conn
	tx      pgx.Tx
	handed  *workTx
	signals []signal.Signal

	mu    sync.Mutex
	ended bool
	cut   bool
}

// Errors of Work that callers branch on.
var (
	// ErrCommitUnknown: the connection broke during the commit, so it may have been
	// committed. See WorkPool.Fate.
	ErrCommitUnknown = errors.New("the outcome of the commit is not known")
	// ErrWorkFailed: the handler has left the transaction in a state that can only be
	// rolled back.
	ErrWorkFailed = errors.New("the transaction of the handler cannot be committed")
	// ErrWorkEnded: the handler has ended the transaction by a statement of its own. Its
	// earlier writes may be committed, without the end of the step.
	ErrWorkEnded = errors.New("the handler has ended its transaction itself")
)

// Tx returns the handler's transaction. It cannot be committed or rolled back; savepoints
// (Begin) can.
func (w *Work) Tx() pg.Tx { return w.handed }

// Within reports whether tx is this transaction, or a savepoint in it.
func (w *Work) Within(tx pg.Tx) bool { return tx.Conn() == w.tx.Conn() }

// Announce sends signals with the commit.
func (w *Work) Announce(signals ...signal.Signal) { w.signals = append(w.signals, signals...) }

// Signals returns those to publish after the commit, unless the store sends them itself.
func (w *Work) Signals() []signal.Signal { return w.signals }

// workTx prevents the handler from ending the transaction.
type workTx struct{ pgx.Tx }

var errNotYours = errors.New("the engine ends the transaction of a handler: return an error to have it rolled back")

// Commit implements pgx.Tx.
func (*workTx) Commit(context.Context) error { return errNotYours }

// Rollback implements pgx.Tx.
func (*workTx) Rollback(context.Context) error { return errNotYours }

// Report reports the end of the step within the transaction. accepted is false if the
// claim is lost; then, and after an error, the transaction must be rolled back.
func (w *Work) Report(ctx context.Context, r Report) (accepted bool, err error) {
	if err := w.reportable(); err != nil {
		return false, err
	}
	defer w.observe("report_in", time.Now(), &err)
	// From here on the row of the step is locked, which others may need; the bound of the
	// handler may be hours.
	hold := strconv.FormatInt(w.pool.store.db.Opts.HoldTimeout.Milliseconds(), 10)
	if err := pg.GuestOf(w.tx).Exec(ctx, holdReported.With(pg.Args{"hold_ms": hold})); err != nil {
		return false, pg.Classify("bound the transaction of a handler", err)
	}
	return reportIn(ctx, w.tx, r)
}

// holdReported bounds the way from the report to the commit.
var holdReported = pg.Compile(`select set_config('idle_in_transaction_session_timeout', @hold_ms::text, true)`)

// reportable checks the state in which the handler left the transaction.
func (w *Work) reportable() error {
	if w.over() {
		return pgx.ErrTxClosed
	}
	c := w.db.Conn().PgConn()
	switch {
	case c.IsClosed():
		return pg.Classify("report in the transaction of the handler", fmt.Errorf("%w: its connection was lost", pg.ErrUnavailable))
	case c.IsBusy():
		return fmt.Errorf("%w: the rows of a query were left open", ErrWorkFailed)
	case c.TxStatus() == 'E':
		return fmt.Errorf("%w: a statement in it has failed", ErrWorkFailed)
	case c.TxStatus() != 'T':
		return ErrWorkEnded
	}
	return nil
}

// reportIn reports the end of one step within a transaction that its caller ends. The
// fence is that of Store.Report: false means that nothing was changed.
func reportIn(ctx context.Context, tx pg.Tx, r Report) (accepted bool, err error) {
	g, held := pg.GuestOf(tx), make(map[int64]int, 1)
	reports := []Report{r}
	for len(reports) > 0 && len(held) == 0 {
		err := stmt.Each(ctx, g, reportSteps.With(pg.Args{"r": reportRows(reports, []int{0})}), func(r *heldStep) {
			held[r.Token] = r.StepNo
		})
		if err != nil {
			return false, pg.Classify("report a result in a transaction", err)
		}
		reports = movedReports(reports, []int{0}, held)
	}
	if isolated := isolatedRows([]Report{r}, []int{0}); isolated != nil && len(held) == 1 {
		if err := g.Exec(ctx, keepIsolated.With(pg.Args{"r": isolated})); err != nil {
			return false, pg.Classify("store the isolated items in a transaction", err)
		}
	}
	return len(held) == 1, nil
}

// Commit commits the transaction and sends its signals the store's way. After an error
// the transaction is over: it wraps ErrCommitUnknown if it may have been committed, and
// otherwise it was not.
func (w *Work) Commit(ctx context.Context) (err error) {
	defer w.observe("commit_work", time.Now(), &err)
	defer w.end()
	s := w.pool.store
	if err := w.reportable(); err != nil { // then no signal is sent
		w.rollback()
		return err
	}
	if s.db.Opts.SignalsInTransaction {
		if err := pg.GuestOf(w.tx).Announce(ctx, pg.AnnounceWAL, w.signals); err != nil {
			w.rollback()
			return pg.Classify("send the signals of the transaction of a handler", err)
		}
	}
	if err := w.tx.Commit(ctx); err != nil {
		if !aborted(err) {
			return fmt.Errorf("%w: %w", ErrCommitUnknown, pg.Classify("commit the transaction of a handler", err))
		}
		return pg.Classify("commit the transaction of a handler", err)
	}
	_ = s.db.Notify(ctx, w.db, w.signals) // a hint; the transaction is committed
	return nil
}

// aborted reports whether a failed commit certainly did not happen: the server says so
// and keeps the connection. A server that ends the connection may do so after the commit,
// and a pooler may report that like any other error. The driver's judgement is no proof:
// after an unanswered statement pgx 5.12 returns "conn closed", which counts as "never
// sent" (pgconn.SafeToRetry).
func aborted(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return true
	}
	said := pg.ServerError(err)
	if said == nil || said.SeverityUnlocalized != "ERROR" || len(said.Code) != 5 {
		return false
	}
	switch said.Code[:2] {
	case "08", "53", "57", "58", "XX": // connection, resources, operator intervention, system, internal
		return false
	}
	return true
}

// Rollback rolls back. It does nothing after the end of the transaction.
func (w *Work) Rollback() {
	w.rollback()
	w.end()
}

// over reports whether the connection has been released.
func (w *Work) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

func (w *Work) rollback() {
	w.mu.Lock()
	over := w.ended || w.cut
	w.mu.Unlock()
	if !over {
		w.pool.store.db.Rollback(w.tx)
	}
}

// end releases the connection, once. One that was cut must not be reused, whatever the
// driver's state of it.
func (w *Work) end() {
	w.mu.Lock()
	over, cut := w.ended, w.cut
	w.ended = true
	w.mu.Unlock()
	if over {
		return
	}
	w.pool.remove(w)
	if cut {
		ctx, cancel := context.WithTimeout(context.Background(), cutPatience)
		defer cancel()
		_ = w.db.Conn().Close(ctx)
	}
	w.db.Release()
}

// cutPatience bounds the request to the server to cancel.
const cutPatience = 2 * time.Second

// Cut breaks the connection of a transaction that has become useless while its handler
// still uses it. The server then rolls it back: at once if it waits for the next
// statement, and a running statement is cancelled. So its row locks are free for the next
// attempt, however long the handler continues. It may be called from any goroutine.
func (w *Work) Cut() {
	w.mu.Lock()
	if w.ended || w.cut {
		w.mu.Unlock()
		return
	}
	w.cut = true
	c := w.db.Conn().PgConn()
	w.mu.Unlock()
	_ = c.Conn().Close() // the driver detects it
	ctx, cancel := context.WithTimeout(context.Background(), cutPatience)
	defer cancel()
	_ = c.CancelRequest(ctx)
}

func (w *Work) observe(flow string, begin time.Time, err *error) {
	w.pool.store.db.Opts.Observe(flow, time.Since(begin), *err)
}

// Fate is the outcome of a claim whose success was reported in a transaction
// (Work.Report) whose commit was not answered.
type Fate uint8

const (
	// FateOpen says that another session has locked the row of the step, perhaps that transaction,
	// which may still be committed. Retry.
	FateOpen Fate = iota + 1
	// FateReported says that it was committed.
	FateReported
	// FateHeld says that it was rolled back, and the claim still holds.
	FateHeld
	// FateLost says that it was rolled back, and the claim is over.
	FateLost
)

// The transaction in question changed the row of its step before its commit was sent, so
// it holds the row's lock until it ends. A session that gets the lock therefore knows
// that it has ended, regardless of the connection, the pooler and the backend in between;
// and it sees the version of the row that the transaction, or a later one, has left. A
// read without the lock would prove nothing: a commit under way may arrive after it.

// successReported holds for the row of a claim whose success was accepted. A task may
// have been called off before that was applied; then the step is recorded as cancelled,
// with its result.
const successReported = `(outcome = {success} or result is not null)`

// lockClaim locks the row of a claim if it is not locked.
// Index: the primary key.
var lockClaim = pg.Compile(`
select state, ` + successReported + ` as success from tasker.board
where task_uuid = any (array[@task::uuid]) and slot in (@slot::smallint, @own_slot::smallint) and step_no = @step::smallint and token = @token::bigint
for update skip locked`)

// findClaim returns whether a claim is on the board, else how it was recorded. Both are
// read with one snapshot: what leaves the board enters the ledger in the same
// transaction.
// Index: the primary keys.
var findClaim = pg.Compile(`
select exists (select from tasker.board
               where task_uuid = any (array[@task::uuid]) and slot in (@slot::smallint, @own_slot::smallint) and step_no = @step::smallint and token = @token::bigint) as waits,
       coalesce((select ` + successReported + ` from tasker.step_attempts where task_uuid = @task::uuid and step_no = @step::smallint and token = @token::bigint), false) as success`)

// Fate determines the outcome of a claim whose success was reported in a transaction with
// an unanswered commit. Every result but FateOpen is final.
func (p *WorkPool) Fate(ctx context.Context, k ClaimKey) (Fate, error) {
	var fate Fate
	err := p.store.db.Repeatable(ctx, "fate", "find out what became of a transaction", func(ctx context.Context, db *pg.Conn) (err error) {
		fate, err = claimFate(ctx, db, k)
		return err
	})
	return fate, err
}

// args name the claim, at either of the places of its row.
func (k ClaimKey) args() pg.Args {
	return pg.Args{"task": [16]byte(k.TaskUUID), "slot": k.Slot, "own_slot": k.Step + 1, "step": k.Step, "token": k.Token}
}

func claimFate(ctx context.Context, db *pg.Conn, k ClaimKey) (Fate, error) {
	type locked struct {
		State   int16
		Success *bool
	}
	type found struct {
		Waits   bool
		Success *bool
	}
	row, err := stmt.One[locked](ctx, db, lockClaim.With(k.args()))
	switch {
	case err == nil && row.State == pg.BoardInProgress:
		return FateHeld, nil
	case err == nil:
		return recordedFate(row.Success), nil
	case !errors.Is(err, pgx.ErrNoRows):
		return 0, err
	}
	other, err := stmt.One[found](ctx, db, findClaim.With(k.args()))
	switch {
	case err != nil:
		return 0, err
	case other.Waits:
		return FateOpen, nil
	}
	return recordedFate(other.Success), nil
}

// recordedFate is the fate of a claim that is over. No other transaction could have
// reported a success for it: the end of its lease and an operator's call are recorded
// under its token as well, without a result.
func recordedFate(success *bool) Fate {
	if success != nil && *success {
		return FateReported
	}
	return FateLost
}

// Continuation is the next task that a handler names when it ends its step.
type Continuation struct {
	Claim    ClaimKey
	StepName string
	Actor    string // recorded in the history of the continued task
	Next     NewTask
}

// continueTask links two tasks: the event is on the continued task, the column on the
// next one. Fields that the request left empty are taken from the old task. A task with a
// claimed step is in process, whatever its stored state.
// Index: the primary keys.
var continueTask = pg.Compile(`
with recorded as (
    insert into tasker.task_events (task_uuid, at, from_state, to_state, actor, reason, metadata)
    select task_uuid, clock_timestamp(), greatest(task_state, {task_in_process}), greatest(task_state, {task_in_process}), @actor, 'continued by ' || @next::uuid,
           jsonb_build_object('continued_by', @next::uuid, 'step', @step::int, 'step_name', @step_name::text, 'token', @token::bigint)
    from tasker.board where task_uuid = @task::uuid and slot = 0
)
update tasker.tasks n
set continues_task_uuid = o.task_uuid, initiator = coalesce(n.initiator, o.initiator),
    source_system = coalesce(n.source_system, o.source_system), tags = coalesce(n.tags, o.tags)
from tasker.tasks o
where n.task_uuid = @next::uuid and o.task_uuid = @task::uuid and not @duplicate::bool`)

// ErrContinuesItself says that the next task has the identity of the task that it continues.
var ErrContinuesItself = errors.New("the next task is the task itself")

// ErrQuota says that the quota of its namespace rejects a next task.
var ErrQuota = errors.New("the quota of its namespace is used up")

// Continue creates the next task within the transaction and links both, see
// CreateTasksIn. It is committed with the report of the step, whose fence decides about
// all of it. A duplicate is recorded as the next task and stays unchanged. After an error
// the transaction must be rolled back.
func (w *Work) Continue(ctx context.Context, c Continuation) (created CreatedTask, err error) {
	if err := w.reportable(); err != nil { // outside its transaction the task would stay
		return created, err
	}
	defer w.observe("continue", time.Now(), &err)
	rows, err := CreateTasksIn(ctx, w.tx, pg.AnnounceNothing, c.Next)
	if err != nil {
		return created, err
	}
	created = rows[0]
	if created.RefusedFor > 0 {
		return created, ErrQuota
	}
	if created.UUID == c.Claim.TaskUUID {
		return created, ErrContinuesItself
	}
	link := continueTask.With(pg.Args{"task": [16]byte(c.Claim.TaskUUID), "next": [16]byte(created.UUID), "step": c.Claim.Step,
		"step_name": c.StepName, "token": c.Claim.Token, "actor": c.Actor, "duplicate": created.Duplicate})
	if err = pg.GuestOf(w.tx).Exec(ctx, link); err != nil {
		return created, pg.Classify("link a task with the next one", err)
	}
	if !created.Duplicate {
		w.Announce(CreateSignals([]NewTask{c.Next})...)
	}
	return created, nil
}
