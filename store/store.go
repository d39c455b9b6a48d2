package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Errors that callers branch on.
var (
	// ErrNotFound: the task, step, plan or namespace does not exist.
	ErrNotFound = errors.New("not found")
	// ErrTaskEnded: the task is terminal, so it cannot be changed this way.
	ErrTaskEnded = errors.New("task has ended")
	// ErrWorkerDead: the fleet considers the worker dead. All its claims are lost, and it
	// must register under a new UUID.
	ErrWorkerDead = errors.New("worker is considered dead")
	// ErrUnavailable: the database cannot be reached or does not answer in
	// time; trying again later may succeed.
	ErrUnavailable = errors.New("database unavailable")
	// ErrSchema: the database has another schema than this program.
	ErrSchema = errors.New("schema version")
)

// Options configure a Store. A zero MaxConns or time-out is that of common.database by
// default ([config.Defaults]).
type Options struct {
	URL              string        // libpq URL or key-value string; may point at PgBouncer
	Like             *PoolConfig   // in place of URL: connect as a pool does, see the function Like
	ApplicationName  string        // shown in pg_stat_activity
	MaxConns         int32         // most connections
	MinConns         int32         // kept open when idle; 0: none
	AcquireTimeout   time.Duration // wait for a connection, then ErrUnavailable
	ConnectTimeout   time.Duration // for each host
	IdleTimeout      time.Duration // then a connection is closed
	MaxLifetime      time.Duration // then a connection is replaced
	StatementTimeout time.Duration // enforced by the server and as a deadline of every call
	// NoPreparedStatements is for PgBouncer in transaction mode.
	NoPreparedStatements bool
	// HoldTimeout is how long the server waits for this process in the middle of a
	// transaction before ending it. It works through a pooler.
	HoldTimeout time.Duration
	// SignalsInTransaction writes signals with pg_logical_emit_message inside
	// the working transaction (event sources "wal" and "relay").
	SignalsInTransaction bool
	// NotifyAfterCommit sends signals as NOTIFY behind the commit, in the same round trip
	// but not in the transaction, which would take a lock for all databases (event source
	// "notify").
	NotifyAfterCommit bool
	// SlowAcquire is the wait for a connection from which OnSlowAcquire is called; 0:
	// never.
	SlowAcquire   time.Duration
	OnSlowAcquire func(waited time.Duration)
	// Observe is called after every flow with its name, duration and error.
	Observe func(flow string, took time.Duration, err error)
	// OnForget is called when the database turns out to be another server, or an older
	// state of it, and the store drops its memory.
	OnForget func()
}

// Store is a pool of connections and the flows over it. It is safe for
// concurrent use.
type Store struct {
	pool *pgxpool.Pool
	// probe is a connection beside the pool for Ping: a busy pool says nothing about the
	// database.
	probe     *pgxpool.Pool
	opts      Options
	hold      string // see holdBounds
	plans     planCache
	marks     marks
	frontiers *frontiers
	callables *callables
	history   history
	reach     reach
	aging     aging // retention's memory of the ledger
	agreed    atomic.Pointer[string]
	copyPause atomic.Int32 // coming creations without COPY
	// inLedger is the number of coming claims that read the ledger at once.
	inLedger atomic.Int32

	closeOnce sync.Once
}

// Open builds the pool and checks that the database answers; the error wraps
// ErrUnavailable if it does not. It does not check the schema: see CheckSchema and
// Migrate.
func Open(ctx context.Context, opts Options) (*Store, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	cfg, err := poolConfig(opts)
	if err != nil {
		return nil, err
	}
	if !opts.NoPreparedStatements {
		// A pooler in transaction mode rejects unknown start-up parameters.
		cfg.ConnConfig.RuntimeParams["statement_timeout"] = fmt.Sprint(opts.StatementTimeout.Milliseconds())
		// Every hot statement is written so that one plan serves all values, and is
		// tested that way with a million rows. Planning it again for the first calls on
		// each connection costs more than running it.
		cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
		for name, value := range planner {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	s := &Store{opts: opts, hold: holdStatement(opts), plans: newPlanCache(), marks: newMarks(), frontiers: newFrontiers(), callables: newCallables()}
	cfg.AfterConnect = s.connected(cfg.AfterConnect)
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", redact(err))
	}
	if s.probe, err = newProbe(ctx, opts); err != nil {
		s.pool.Close()
		return nil, err
	}
	if err := s.ping(ctx, s.pool); err != nil {
		s.Close()
		return nil, err
	}
	s.reach.since = time.Now()
	s.reach.last = s.reach.since
	return s, nil
}

// newProbe prepares the connection of Ping, opened on first use.
func newProbe(ctx context.Context, opts Options) (*pgxpool.Pool, error) {
	opts.MaxConns, opts.MinConns, opts.ApplicationName = 1, 0, opts.ApplicationName+"-probe"
	cfg, err := poolConfig(opts)
	if err != nil {
		return nil, err
	}
	probe, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection for probes: %w", redact(err))
	}
	return probe, nil
}

// Check rejects options with which Open always fails.
func (o Options) Check() error {
	o, err := o.complete()
	if err == nil {
		_, err = poolConfig(o)
	}
	return err
}

// connecting returns how connections are made, by URL or like those of a pool.
func connecting(url string, like *PoolConfig) (*pgxpool.Config, error) {
	if like != nil {
		return like.Copy(), nil
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", redact(err))
	}
	return cfg, nil
}

// poolConfig is what all pools of a store have in common: how they connect.
func poolConfig(opts Options) (*pgxpool.Config, error) {
	cfg, err := connecting(opts.URL, opts.Like)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns = opts.MaxConns, opts.MinConns
	cfg.MaxConnIdleTime, cfg.MaxConnLifetime = opts.IdleTimeout, opts.MaxLifetime
	cfg.MaxConnLifetimeJitter = opts.MaxLifetime / 10
	cfg.ConnConfig.ConnectTimeout = opts.ConnectTimeout
	// A frozen or unreachable server does not close its connections. Without a limit each
	// idle one would use the whole wait for a connection before it is dropped.
	cfg.PingTimeout = pingTimeout
	cfg.ConnConfig.RuntimeParams["application_name"] = opts.ApplicationName
	if opts.NoPreparedStatements {
		// Types are read once and cached in the client; the server keeps nothing between
		// transactions. Without types (QueryExecModeExec) pgx cannot write arrays of
		// UUIDs.
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return cfg, nil
}

// planner is how connections plan statements. A plan made while the tables were empty is
// kept for minutes, and on an empty table a sequential scan looks cheapest. Every hot
// statement has an index to use, row by row: so other methods are off, and reading a row
// costs as much as fetching a page. Without an alternative the planner uses a disabled
// method at a cost for which it would compile the plan; so that is off too. A bitmap
// would read a list from its mark to its end, including dead entries, where the first few
// are wanted.
var planner = map[string]string{
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
	"random_page_cost": "1", "cpu_tuple_cost": "1", "cpu_index_tuple_cost": "0.5",
}

// Close closes all connections; it is idempotent.
func (s *Store) Close() {
	s.closeOnce.Do(func() {
		s.probe.Close()
		s.pool.Close()
	})
}

// pingTimeout bounds the question whether an idle connection still works.
const pingTimeout = 2 * time.Second

// Ping checks that the database answers, over its own connection: it does not wait for
// one of the pool. It waits at most the connection timeout for each host of the URL.
func (s *Store) Ping(ctx context.Context) error { return s.ping(ctx, s.probe) }

func (s *Store) ping(ctx context.Context, pool *pgxpool.Pool) error {
	hosts := 1 + len(pool.Config().ConnConfig.Fallbacks)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(hosts)*s.opts.ConnectTimeout)
	defer cancel()
	begin := time.Now()
	err := pool.Ping(ctx)
	s.opts.Observe("ping", time.Since(begin), err)
	if err != nil {
		return classify("reach the database", err)
	}
	return nil
}

// Execer returns the pool for sending signals.
func (s *Store) Execer() *pgxpool.Pool { return s.pool }

// PoolStat is the state of the pool.
type PoolStat struct {
	Max, Total, Acquired, Idle int32
	Acquires, EmptyAcquires    int64
	AcquireDuration            time.Duration
}

// PoolStat reports the state of the pool; it is cheap.
func (s *Store) PoolStat() PoolStat { return statOf(s.pool) }

func statOf(pool *pgxpool.Pool) PoolStat {
	st := pool.Stat()
	return PoolStat{
		Max: st.MaxConns(), Total: st.TotalConns(), Acquired: st.AcquiredConns(), Idle: st.IdleConns(),
		Acquires: st.AcquireCount(), EmptyAcquires: st.EmptyAcquireCount(), AcquireDuration: st.AcquireDuration(),
	}
}

// conn is one connection of the pool.
type conn = pgxpool.Conn

// maxTries bounds the tries of a flow with conflicts.
const maxTries = 3

// call runs a flow on one connection. fn is run again if the server rolled it back to end
// a deadlock: keys are sent in one order, but the order in which a statement locks them
// depends on its plan, and two reports of the same claims may differ in that.
func (s *Store) call(ctx context.Context, flow, doing string, fn func(ctx context.Context, db *conn) error) error {
	return s.timed(ctx, flow, doing, func(ctx context.Context) error {
		db, err := s.acquire(ctx)
		if err != nil {
			return err
		}
		defer db.Release()
		for try := 1; ; try++ {
			if err := fn(ctx, db); try == maxTries || !Undone(err) {
				return s.lost(db, err)
			}
		}
	})
}

// repeatable is call for flows that may run twice: a second run after a lost answer does
// no harm. It is repeated once on a new connection if the first one turned out to be
// dead, as all are after a restart or failover of the server.
func (s *Store) repeatable(ctx context.Context, flow, doing string, fn func(ctx context.Context, db *conn) error) error {
	err := s.call(ctx, flow, doing, fn)
	var dead *connectionLost
	if errors.As(err, &dead) && ctx.Err() == nil {
		return s.call(ctx, flow, doing, fn)
	}
	return err
}

// connectionLost says that a flow ended with its connection.
type connectionLost struct{ err error }

func (e *connectionLost) Error() string { return e.err.Error() }
func (e *connectionLost) Unwrap() error { return e.err }

// lost marks an error that has cost the connection, and drops the idle ones, which most
// likely lead to the same server. So does a server that accepts no writes any more:
// another one has become the primary.
func (s *Store) lost(db *conn, err error) error {
	if readOnly(err) {
		s.pool.Reset() // this one closes when it is released
		return &connectionLost{err}
	}
	if heldTooLong(err) { // the server is still the same
		return &connectionLost{err}
	}
	if err == nil || !db.Conn().IsClosed() || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.pool.Reset()
	return &connectionLost{err}
}

// Undone reports whether the server rolled back a transaction because of a conflict
// (deadlock, serialisation failure), so that it may be retried.
func Undone(err error) bool {
	code := serverCode(err)
	return code == "40P01" || code == "40001"
}

// acquire waits for a free connection, not longer than AcquireTimeout.
func (s *Store) acquire(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.AcquireTimeout)
	defer cancel()
	begin := time.Now()
	db, err := s.pool.Acquire(ctx)
	if waited := time.Since(begin); s.opts.SlowAcquire > 0 && waited >= s.opts.SlowAcquire && s.opts.OnSlowAcquire != nil {
		s.opts.OnSlowAcquire(waited)
	}
	if err != nil {
		return nil, fmt.Errorf("acquire a connection: %w", err)
	}
	return db, nil
}

// timed bounds a flow by a deadline, observes it and classifies its error.
func (s *Store) timed(ctx context.Context, flow, doing string, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.StatementTimeout+s.opts.AcquireTimeout)
	defer cancel()
	start := time.Now()
	err := fn(ctx)
	took := time.Since(start)
	s.reach.note(err, start.Add(took))
	s.opts.Observe(flow, took, err)
	if err != nil {
		return classify(doing, err)
	}
	return nil
}

// inTx runs fn in a transaction and commits it. The rollback after a failure has its own
// deadline, so that a cancelled caller leaves no open transaction.
func (s *Store) inTx(ctx context.Context, db *conn, fn func(tx pgx.Tx) error) error {
	tx, err := s.begin(ctx, db, "")
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		s.rollback(tx)
		return err
	}
	return tx.Commit(ctx)
}

// inTxThenNotify is inTx for flows whose signals are known only after they have run. A
// signal that cannot be sent after the commit is not a failure of the flow.
func (s *Store) inTxThenNotify(ctx context.Context, db *conn, fn func(tx pgx.Tx) ([]signal.Signal, error)) error {
	var signals []signal.Signal
	err := s.inTx(ctx, db, func(tx pgx.Tx) (err error) {
		if signals, err = fn(tx); err != nil {
			return err
		}
		b := &pgx.Batch{}
		if s.queueSignals(b, signals); b.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, b).Close()
	})
	if err == nil {
		_ = s.notify(ctx, db, signals)
	}
	return err
}

// transaction runs a flow in one transaction on one connection, see call, and sends the
// signals that fn returns.
func (s *Store) transaction(ctx context.Context, flow, doing string, fn func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error)) error {
	return s.call(ctx, flow, doing, func(ctx context.Context, db *conn) error {
		return s.inTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) { return fn(ctx, tx) })
	})
}

func (s *Store) rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // a connection that cannot roll back is closed by the pool
}

// classify wraps err with the operation and adds ErrUnavailable if the database could not
// be reached or did not answer.
func classify(doing string, err error) error {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrTaskEnded) || errors.Is(err, ErrWorkerDead) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if unavailable(err) {
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, redact(err))
	}
	return fmt.Errorf("%s: %w", doing, redact(err))
}

func unavailable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	if code := serverCode(err); len(code) == 5 {
		switch code[:2] {
		case "08", "53", "57", "58": // connection, resources, operator intervention, system
			return true
		}
		return readOnly(err) || heldTooLong(err)
	}
	var netErr net.Error
	var connect *pgconn.ConnectError
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &connect) ||
		errors.As(err, &netErr) || pgconn.SafeToRetry(err) || errors.Is(err, net.ErrClosed) || isEOF(err)
}

// readOnly reports whether the server rejects writes: a primary that has become a
// standby.
func readOnly(err error) bool { return serverCode(err) == "25006" }

// heldTooLong reports whether the server ended a transaction because it waited too long
// for this process.
func heldTooLong(err error) bool {
	code := serverCode(err)
	return code == "25P03" || code == "25P04"
}

// serverError returns the server's error; nil without one.
func serverError(err error) *pgconn.PgError {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return nil
	}
	return answer
}

// serverCode is the code of the server's error; empty without one.
func serverCode(err error) string {
	if answer := serverError(err); answer != nil {
		return answer.Code
	}
	return ""
}

const uniqueViolation = "23505" // a code of the server

// LockTimeout reports whether a statement has waited for a lock in vain.
func LockTimeout(err error) bool { return serverCode(err) == "55P03" } // lock_not_available

// StepUUID derives the UUID of a step from its task and number, as
// tasker.step_uuid does in SQL: the last two bytes of the task's UUID,
// xor (step + 1).
func StepUUID(task uuid.UUID, step int) uuid.UUID {
	task[14] ^= byte((step + 1) >> 8)
	task[15] ^= byte(step + 1) // only the low byte
	return task
}

// BatchUUID is the UUID of a step whose number earlier steps had: a batch created again
// is another step, and calls that a handler made under the earlier UUID do not count for
// it. run is the number of earlier ones, as tasker.step_uuid takes it: bytes 10 to 13,
// xor run.
func BatchUUID(task uuid.UUID, step, run int) uuid.UUID {
	id := StepUUID(task, step)
	for i := range 4 {
		id[13-i] ^= byte(run >> (8 * i)) // only the low byte
	}
	return id
}

// StepOf splits the UUID of a step of a task, see BatchUUID; ok is false if it belongs to
// another task.
func StepOf(task, id uuid.UUID) (step, run int, ok bool) {
	for i := range id {
		id[i] ^= task[i]
	}
	step = int(binary.BigEndian.Uint16(id[14:])) - 1
	run = int(binary.BigEndian.Uint32(id[10:]))
	return step, run, step >= 0 && [10]byte(id[:10]) == [10]byte{}
}

// Lane is the order of claims in a queue, smallest first: by priority (higher first), and
// within a priority the steps of tasks that have begun before the first steps of new
// ones, so that begun tasks finish.
func Lane(priority int, started bool) int16 {
	lane := 2 * (workflow.MaxPriority - min(max(priority, workflow.MinPriority), workflow.MaxPriority))
	if !started {
		lane++
	}
	return int16(lane) // #nosec G115 -- at most 401
}

// redacted keeps an error's chain but no text that could hold a password.
type redacted struct {
	text string
	err  error
}

func (r redacted) Error() string { return r.text }
func (r redacted) Unwrap() error { return r.err }

// redact removes connection strings from the text of configuration errors;
// pgx quotes the whole string in them.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return redacted{text: "the connection string cannot be read (its text is withheld: it may hold a password)", err: nil}
	}
	return err
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
