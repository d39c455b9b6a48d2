package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/signal/pgdial"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Config describes a Relay. A zero field means its default.
type Config struct {
	// WAL is how the leader reads the WAL, and how each replica connects. A persistent slot
	// is read by the leader, so that a new one continues where the old one ended. The
	// default of ApplicationName is "tasker-relay"; in pg_stat_replication "-wal" is added.
	WAL wal.Config
	// Namespaces lists all namespaces, whose topics a new leader announces. Required.
	// Its context has a deadline.
	Namespaces func(ctx context.Context) ([]string, error)
	// RetryInterval is how often a replica tries to become the leader, jittered down to
	// its half. Default 2 s.
	RetryInterval time.Duration
	// TakeOverTimeout bounds the preparations of a new leader. Making a temporary slot
	// waits for the running transactions that write. Default 30 s.
	TakeOverTimeout time.Duration
	// ProbeInterval is how often the leader probes itself through the WAL. Default 2 s.
	ProbeInterval time.Duration
	// DeafAfter is the time without a returned probe after which the leader gives up.
	// It does not apply to a persistent slot, because reading it again would begin at
	// the same place; wal.Config.SilenceTimeout does. Default 30 s.
	DeafAfter time.Duration
	Logger    *zap.Logger        // default none
	Metrics   *telemetry.Metrics // default none
}

func (c Config) withDefaults() (Config, error) {
	if c.Namespaces == nil {
		return c, errors.New("relay: missing Namespaces")
	}
	c.WAL.ApplicationName = cmp.Or(c.WAL.ApplicationName, "tasker-relay")
	c.RetryInterval = cmp.Or(max(c.RetryInterval, 0), 2*time.Second)
	c.TakeOverTimeout = cmp.Or(max(c.TakeOverTimeout, 0), 30*time.Second)
	c.ProbeInterval = cmp.Or(max(c.ProbeInterval, 0), 2*time.Second)
	c.DeafAfter = cmp.Or(max(c.DeafAfter, 0), 30*time.Second)
	c.Logger = cmp.Or(c.Logger, zap.NewNop())
	c.Metrics = c.Metrics.OrDiscard()
	return c, nil
}

// Relay is one candidate of the election and, once elected, the relay of the fleet. It
// implements lifecycle.Service and is safe for concurrent use.
type Relay struct {
	cfg  Config
	dial *pgdial.Dialer
	loop *lifecycle.Loop

	mu    sync.Mutex
	state Health // without Loop
	lag   func() int64
}

var _ lifecycle.Service = (*Relay)(nil)

// New returns a Relay that does not run yet.
func New(cfg Config) (*Relay, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg}
	w := cfg.WAL
	r.dial, err = pgdial.New(pgdial.Target{DSN: w.DSN, Like: w.Like, ApplicationName: w.ApplicationName, ConnectTimeout: w.ConnectTimeout})
	if err != nil {
		return nil, err
	}
	r.dial.Name(w.ApplicationName)                                              // distinguishes the sessions
	if _, err := wal.New(r.walConfig(nil), wal.NewTransport(nil)); err != nil { // names are checked now
		return nil, err
	}
	r.loop = lifecycle.NewLoop(lifecycle.LoopConfig{
		Name: "signal-relay", Run: r.run, Logger: cfg.Logger,
		OnRestart: cfg.Metrics.Restarted,
	})
	return r, nil
}

func (r *Relay) walConfig(v *session) wal.Config {
	c := r.cfg.WAL
	c.AllTopics, c.ApplicationName, c.Server = true, c.ApplicationName+"-wal", nil
	if v != nil {
		c.Server = v
	}
	return c
}

// Name implements lifecycle.Service.
func (r *Relay) Name() string { return r.loop.Name() }

// Start implements lifecycle.Service. It does not wait for a leader.
func (r *Relay) Start(ctx context.Context) error { return r.loop.Start(ctx) }

// Stop implements lifecycle.Service: a leader sends the signals it has received and
// releases the lock.
func (r *Relay) Stop(ctx context.Context) error { return r.loop.Stop(ctx) }

// Health is the state of a Relay.
type Health struct {
	// Connected: it has a session with the server, so it leads or another does.
	Connected bool `json:"connected"`
	Leader    bool `json:"leader"`
	// LeaderSince is the time of its election, zero unless it leads.
	LeaderSince time.Time `json:"leader_since,omitzero"`
	// Elections counts its elections and Forwarded the signals it forwarded, since New.
	Elections uint64 `json:"elections"`
	Forwarded uint64 `json:"forwarded"`
	// LagBytes of WAL are known and not received yet; 0 unless it leads.
	LagBytes int64 `json:"lag_bytes"`
	// LastError is why it is not connected or does not lead; for logs and authorized
	// readers.
	LastError string               `json:"last_error,omitempty"`
	Loop      lifecycle.LoopHealth `json:"loop"`
}

// Health returns the present state.
func (r *Relay) Health() Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.state
	if r.lag != nil {
		h.LagBytes = r.lag()
	}
	h.Loop = r.loop.Health()
	return h
}

// run is a candidate, and the leader where elected, until ctx ends.
func (r *Relay) run(ctx context.Context) error {
	for {
		err := r.candidate(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.failed(err)
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

// candidate tries to be elected for as long as its session lasts.
func (r *Relay) candidate(ctx context.Context) error {
	v, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		v.close()
		r.update(func(h *Health) { h.Connected = false })
	}()
	for {
		locked, err := v.tryLock(ctx)
		if err != nil {
			return err
		}
		if locked {
			return r.lead(ctx, v)
		}
		r.update(func(h *Health) { h.Connected, h.LastError = true, "" })
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

func (r *Relay) connect(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.TakeOverTimeout)
	defer cancel()
	// A candidate is idle between two tries, and during the take-over.
	return dial(ctx, r.dial, r.cfg.RetryInterval+r.cfg.TakeOverTimeout)
}

// pause waits for the next try.
func (r *Relay) pause(ctx context.Context) error {
	d := r.cfg.RetryInterval
	return lifecycle.Pause(ctx, d-rand.N(d/2+1))
}

// failed records why the session ended.
func (r *Relay) failed(err error) {
	first := false
	r.update(func(h *Health) {
		first = h.LastError == ""
		h.LastError = err.Error()
	})
	level := zap.DebugLevel // the first error of a series is logged as a warning
	if first {
		level = zap.WarnLevel
	}
	r.cfg.Logger.Log(level, "relay not connected", zap.Error(err))
}

func (r *Relay) update(change func(*Health)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.state)
}

// elected and resigned update the state, log and metrics of a leadership.
func (r *Relay) elected(lag func() int64) {
	r.mu.Lock()
	r.lag = lag
	r.state.Connected, r.state.Leader, r.state.LastError = true, true, ""
	r.state.LeaderSince = time.Now()
	r.state.Elections++
	r.mu.Unlock()
	r.cfg.Metrics.RelayLeader.Set(1)
	r.cfg.Logger.Info("this replica relays the signals of the fleet")
}

func (r *Relay) resigned() {
	r.mu.Lock()
	led := r.state.Leader
	r.lag, r.state.Leader, r.state.LeaderSince = nil, false, time.Time{}
	r.mu.Unlock()
	if !led {
		return
	}
	r.cfg.Metrics.RelayLeader.Set(0)
	r.cfg.Metrics.WALLag.DeleteLabelValues(Name)
	r.cfg.Logger.Info("this replica no longer relays signals")
}

func (r *Relay) forwarded() {
	r.update(func(h *Health) { h.Forwarded++ })
	r.cfg.Metrics.RelayForwarded.Inc()
}

// errorf wraps errors of a take-over or a leadership.
func errorf(doing string, err error) error { return fmt.Errorf("relaying: %s: %w", doing, err) }
