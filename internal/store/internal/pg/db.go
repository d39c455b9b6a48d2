package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/signal"
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
	// ErrNewer: a newer version of the program has written the task or its plan, and this one
	// cannot read it.
	ErrNewer = errors.New("written by a newer version")
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
	// Traces has the traces of tasks read where only spans need them.
	Traces bool
	// SignalsInTransaction writes signals with pg_logical_emit_message inside
	// the working transaction (event sources "wal" and "relay").
	SignalsInTransaction bool
	// NotifyAfterCommit sends signals as NOTIFY behind the commit, in the same round trip
	// but not in the transaction, which would take a lock for all databases (event source
	// "notify").
	NotifyAfterCommit bool
	// Publish, when set, is called with the signals of each commit, after it, at each place
	// where NotifyAfterCommit would send them; it must not block (event source "amqp").
	Publish func(signals ...signal.Signal)
	// SlowAcquire is the wait for a connection from which OnSlowAcquire is called; 0:
	// never.
	SlowAcquire   time.Duration
	OnSlowAcquire func(waited time.Duration)
	// Predictor comes before what was learned from executions, where policies of lines order
	// by expected times; nil: there is none. NotFollowed is called for each step for which it
	// has no answer, Unpredicted for each of which nothing is known.
	Predictor   order.Predictor
	NotFollowed func(why order.Missing)
	Unpredicted func()
	// Observe is called after every flow with its name, duration and error.
	Observe func(flow string, took time.Duration, err error)
	// OnRejected is called for each row of a flow that the database rejects, and that the store
	// leaves out.
	OnRejected func(flow, row string, why error)
	// OnForget is called when the database turns out to be another server, or an older
	// state of it, and the store drops its memory.
	OnForget func()

	lines *lines // of all pools of a store
}

// DB is a pool of connections with what all rooms share: how a flow runs, and what ends
// the memory of the database. It is safe for concurrent use.
type DB struct {
	Pool *pgxpool.Pool
	Opts Options
	Hold string // see holdBounds
	// History is the last known position of the database.
	History history
	// Following: whether clients follow transitions.
	Following following

	// probe is a connection beside the pool for Ping: a busy pool says nothing about the
	// database.
	probe     *pgxpool.Pool
	reach     reach
	closeOnce sync.Once
	memories  memories
	recovery  recovery
	lines     *lines
}

// Open builds the pool and checks that the database answers; the error wraps
// ErrUnavailable if it does not. It does not check the schema.
func Open(ctx context.Context, opts Options) (*DB, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	opts.lines = newLines()
	cfg, err := NewPoolConfig(opts)
	if err != nil {
		return nil, err
	}
	if !opts.NoPreparedStatements {
		// A pooler in transaction mode rejects unknown start-up parameters.
		cfg.ConnConfig.RuntimeParams["statement_timeout"] = fmt.Sprint(opts.StatementTimeout.Milliseconds())
		// Every hot statement is written so that one plan serves all values, and is
		// tested that way with a million rows. Planning it again for the first calls on
		// each connection costs more than running it.
		cfg.ConnConfig.RuntimeParams[planCacheMode] = forceGenericPlan
		for name, value := range Planner {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
		for name, value := range session {
			setParameter(cfg.ConnConfig.RuntimeParams, name, value)
		}
		setParameter(cfg.ConnConfig.RuntimeParams, "idle_session_timeout", "0") // the pool has its own
	}
	s := &DB{Opts: opts, Hold: holdStatement(opts), recovery: newRecovery(), lines: opts.lines}
	cfg.AfterConnect = s.connected(cfg.AfterConnect)
	if s.Pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("open the connection pool: %w", Redact(err))
	}
	if s.probe, err = newProbe(ctx, opts); err != nil {
		s.Pool.Close()
		return nil, err
	}
	if err := s.ping(ctx, s.Pool); err != nil {
		s.close()
		return nil, err
	}
	s.reach.since = time.Now()
	s.reach.last = s.reach.since
	return s, nil
}

// Server is what callers of the store see of its connections.
type Server struct{ db *DB }

// Server returns the part of the connections that callers of the store see.
func (s *DB) Server() Server { return Server{s} }

// newProbe prepares the connection of Ping, opened on first use.
func newProbe(ctx context.Context, opts Options) (*pgxpool.Pool, error) {
	opts.MaxConns, opts.MinConns, opts.ApplicationName = 1, 0, opts.ApplicationName+"-probe"
	cfg, err := NewPoolConfig(opts)
	if err != nil {
		return nil, err
	}
	probe, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection for probes: %w", Redact(err))
	}
	return probe, nil
}

// Check rejects options with which Open always fails.
func (o Options) Check() error {
	o, err := o.complete()
	if err == nil {
		_, err = NewPoolConfig(o)
	}
	return err
}

// Connecting returns how connections are made, by URL or like those of a pool.
func Connecting(url string, like *PoolConfig) (*pgxpool.Config, error) {
	if like != nil {
		return like.Copy(), nil
	}
	cfg, err := pgxpool.ParseConfig(config.PostgresDSN(url))
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", Redact(err))
	}
	c := cfg.ConnConfig
	switch c.DefaultQueryExecMode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		// Without the types of parameters pgx cannot write arrays of UUIDs.
		return nil, fmt.Errorf("invalid default_query_exec_mode %q in the database URL: want none, "+
			"and common.database.prepared_statements = false for a pooler", modeNames[c.DefaultQueryExecMode])
	}
	c.StatementCacheCapacity = max(c.StatementCacheCapacity, statementCache)
	c.DescriptionCacheCapacity = max(c.DescriptionCacheCapacity, statementCache)
	return cfg, nil
}

// modeNames are the names of the modes that are refused.
var modeNames = map[pgx.QueryExecMode]string{
	pgx.QueryExecModeExec: "exec", pgx.QueryExecModeSimpleProtocol: "simple_protocol",
}

// NewPoolConfig is what all pools of a store have in common: how they connect.
func NewPoolConfig(opts Options) (*pgxpool.Config, error) {
	cfg, err := Connecting(opts.URL, opts.Like)
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
	if opts.lines != nil {
		cfg.ConnConfig.DialFunc = opts.lines.dialing(cfg.ConnConfig.DialFunc)
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = opts.ApplicationName
	if opts.NoPreparedStatements {
		// Types are read once and cached in the client; the server keeps nothing between
		// transactions. Without types (QueryExecModeExec) pgx cannot write arrays of
		// UUIDs.
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	return cfg, nil
}

// Planner is how connections plan statements. A plan made while the tables were empty is
// kept for minutes, and on an empty table a sequential scan looks cheapest. Every hot
// statement has an index to use, row by row: so other methods are off, and reading a row
// costs as much as fetching a page. Without an alternative the Planner uses a disabled
// method at a cost for which it would compile the plan; so that is off too. A bitmap
// would read a list from its mark to its end, including dead entries, where the first few
// are wanted.
var Planner = map[string]string{
	"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off",
	"random_page_cost": "1", "cpu_tuple_cost": "1", "cpu_index_tuple_cost": "0.5",
}

// Close closes all connections; it is idempotent.
func (s Server) Close() { s.db.close() }

func (s *DB) close() {
	s.closeOnce.Do(func() {
		s.probe.Close()
		s.Pool.Close()
	})
}

// pingTimeout bounds the question whether an idle connection still works.
const pingTimeout = 2 * time.Second

// Ping checks that the database answers, over its own connection: it does not wait for
// one of the pool. It waits at most the connection timeout for each host of the URL.
func (s Server) Ping(ctx context.Context) error { return s.db.ping(ctx, s.db.probe) }

func (s *DB) ping(ctx context.Context, pool *pgxpool.Pool) error {
	hosts := 1 + len(pool.Config().ConnConfig.Fallbacks)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(hosts)*s.Opts.ConnectTimeout)
	defer cancel()
	begin := time.Now()
	err := pool.Ping(ctx)
	s.Opts.Observe("ping", time.Since(begin), err)
	if err != nil {
		return Classify("reach the database", err)
	}
	return nil
}

// Execer returns the pool for sending signals.
func (s Server) Execer() *pgxpool.Pool { return s.db.Pool }

// PoolStat is the state of the pool.
type PoolStat struct {
	Max, Total, Acquired, Idle int32
	Acquires, EmptyAcquires    int64
	AcquireDuration            time.Duration
}

// PoolStat reports the state of the pool; it is cheap.
func (s Server) PoolStat() PoolStat { return StatOf(s.db.Pool) }

// StatOf is the state of a pool.
func StatOf(pool *pgxpool.Pool) PoolStat {
	st := pool.Stat()
	return PoolStat{
		Max: st.MaxConns(), Total: st.TotalConns(), Acquired: st.AcquiredConns(), Idle: st.IdleConns(),
		Acquires: st.AcquireCount(), EmptyAcquires: st.EmptyAcquireCount(), AcquireDuration: st.AcquireDuration(),
	}
}

// Conn is one connection of the pool.
type Conn = pgxpool.Conn

// maxTries bounds the tries of a flow with conflicts.
const maxTries = 3

// Call runs a flow on one connection. fn is run again if the server rolled it back to end
// a deadlock: keys are sent in one order, but the order in which a statement locks them
// depends on its plan, and two reports of the same claims may differ in that.
func (s *DB) Call(ctx context.Context, flow, doing string, fn func(ctx context.Context, db *Conn) error) error {
	return s.Timed(ctx, flow, doing, func(ctx context.Context) error {
		db, err := s.Acquire(ctx)
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

// Repeatable is call for flows that may run twice: a second run after a lost answer does
// no harm. It is repeated once on a new connection if the first one turned out to be
// dead, as all are after a restart or failover of the server.
func (s *DB) Repeatable(ctx context.Context, flow, doing string, fn func(ctx context.Context, db *Conn) error) error {
	err := s.Call(ctx, flow, doing, fn)
	var dead *connectionLost
	if errors.As(err, &dead) && ctx.Err() == nil {
		return s.Call(ctx, flow, doing, fn)
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
func (s *DB) lost(db *Conn, err error) error {
	if readOnly(err) {
		s.Pool.Reset() // this one closes when it is released
		return &connectionLost{err}
	}
	if heldTooLong(err) { // the server is still the same
		return &connectionLost{err}
	}
	if err == nil || !db.Conn().IsClosed() || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	s.Pool.Reset()
	return &connectionLost{err}
}

// Undone reports whether the server rolled back a transaction because of a conflict
// (deadlock, serialisation failure), so that it may be retried.
func Undone(err error) bool {
	code := ServerCode(err)
	return code == "40P01" || code == "40001"
}

// Acquire waits for a free connection, not longer than AcquireTimeout.
func (s *DB) Acquire(ctx context.Context) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Opts.AcquireTimeout)
	defer cancel()
	begin := time.Now()
	db, err := s.Pool.Acquire(ctx)
	if waited := time.Since(begin); s.Opts.SlowAcquire > 0 && waited >= s.Opts.SlowAcquire && s.Opts.OnSlowAcquire != nil {
		s.Opts.OnSlowAcquire(waited)
	}
	if err != nil {
		return nil, fmt.Errorf("acquire a connection: %w", err)
	}
	return db, nil
}

// Timed bounds a flow by a deadline, observes it and classifies its error.
func (s *DB) Timed(ctx context.Context, flow, doing string, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Opts.StatementTimeout+s.Opts.AcquireTimeout)
	defer cancel()
	start := time.Now()
	err := fn(ctx)
	took := time.Since(start)
	s.reach.note(err, start.Add(took))
	if outOfReach(err) {
		lifecycle.Nudge(s.recovery.broken)
		if connectionGone(err) {
			s.forgetPlaces()
		}
	}
	s.Opts.Observe(flow, took, err)
	if err != nil {
		return Classify(doing, err)
	}
	return nil
}

// InTx runs fn in a transaction and commits it. The rollback after a failure has its own
// deadline, so that a cancelled caller leaves no open transaction.
func (s *DB) InTx(ctx context.Context, db *Conn, fn func(tx pgx.Tx) error) error {
	tx, err := s.Begin(ctx, db, "")
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		s.Rollback(tx)
		return err
	}
	return tx.Commit(ctx)
}

// InTxThenNotify is InTx for flows whose signals are known only after they have run. A
// signal that cannot be sent after the commit is not a failure of the flow.
func (s *DB) InTxThenNotify(ctx context.Context, db *Conn, fn func(tx pgx.Tx) ([]signal.Signal, error)) error {
	var signals []signal.Signal
	err := s.InTx(ctx, db, func(tx pgx.Tx) (err error) {
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
		_ = s.Notify(ctx, db, signals)
	}
	return err
}

// Transaction runs a flow in one transaction on one connection, see call, and sends the
// signals that fn returns.
func (s *DB) Transaction(ctx context.Context, flow, doing string, fn func(ctx context.Context, tx pgx.Tx) ([]signal.Signal, error)) error {
	return s.Call(ctx, flow, doing, func(ctx context.Context, db *Conn) error {
		return s.InTxThenNotify(ctx, db, func(tx pgx.Tx) ([]signal.Signal, error) { return fn(ctx, tx) })
	})
}

// Rollback rolls back within a time of its own, see InTx.
func (s *DB) Rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = tx.Rollback(ctx) // a connection that cannot roll back is closed by the pool
}

// OfNewer adds ErrNewer to an error of decoding that says that this version does not know the
// format (errors.ErrUnsupported).
func OfNewer(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrNewer, err)
	}
	return err
}

// Classify wraps err with the operation and adds ErrUnavailable if the database could not
// be reached or did not answer.
func Classify(doing string, err error) error {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrTaskEnded) || errors.Is(err, ErrWorkerDead) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if refusedParameter(err) {
		return fmt.Errorf("%s: %w: %s", doing, Redact(err), poolerRemedy)
	}
	if unavailable(err) {
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, Redact(err))
	}
	return fmt.Errorf("%s: %w", doing, Redact(err))
}

func unavailable(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	if code := ServerCode(err); len(code) == 5 {
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

// Rejected reports whether the database has answered and rejected a statement, or a row of its
// answer could not be read: what one of many rows can cause. Its connection, shutdown and
// resources, time limits, and conflicts with others are no reason to look for a culprit. A read
// error of the disk (class 58) is one.
func Rejected(err error) bool {
	if err == nil || Undone(err) || LockTimeout(err) || errors.Is(err, ErrWorkerDead) || errors.Is(err, ErrSchema) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if code := ServerCode(err); len(code) == 5 && code[:2] == "58" {
		return true
	}
	return !errors.Is(err, ErrUnavailable) && !unavailable(err)
}

// OfContent reports whether the database has rejected values, so that a repetition would be
// rejected too: a data exception, a violated constraint, or a limit.
func OfContent(err error) bool {
	if code := ServerCode(err); len(code) == 5 {
		return code[:2] == "22" || code[:2] == "23" || code[:2] == "54"
	}
	return false
}

// readOnly reports whether the server rejects writes: a primary that has become a
// standby.
func readOnly(err error) bool { return ServerCode(err) == "25006" }

// heldTooLong reports whether the server ended a transaction because it waited too long
// for this process.
func heldTooLong(err error) bool {
	code := ServerCode(err)
	return code == "25P03" || code == "25P04"
}

// ServerError returns the server's error; nil without one.
func ServerError(err error) *pgconn.PgError {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return nil
	}
	return answer
}

// ServerCode is the code of the server's error; empty without one.
func ServerCode(err error) string {
	var answer interface{ SQLState() string }
	if errors.As(err, &answer) {
		return answer.SQLState()
	}
	return ""
}

// UniqueViolation is the code of the server for a key that exists.
const UniqueViolation = "23505"

// LockTimeout reports whether a statement has waited for a lock in vain.
func LockTimeout(err error) bool { return ServerCode(err) == "55P03" } // lock_not_available

// redacted keeps an error's chain but no text that could hold a password.
type redacted struct {
	text string
	err  error
}

func (r redacted) Error() string { return r.text }

func (r redacted) Unwrap() error { return r.err }

// Redact removes connection strings from the text of configuration errors;
// pgx quotes the whole string in them.
func Redact(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return redacted{text: "the connection string cannot be read (its text is withheld: it may hold a password)", err: nil}
	}
	return err
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
