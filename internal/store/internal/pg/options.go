package pg

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/settings"
	"github.com/tasker-go/tasker/internal/signal/notify"
	"github.com/tasker-go/tasker/internal/signal/wal"
)

// Configure translates the settings of the database.
func Configure(c config.Common) Options {
	d := c.Database
	return Options{
		URL:      d.URL.Reveal(),
		MaxConns: int32(d.Pool.MaxConnections), MinConns: int32(d.Pool.MinConnections), // #nosec G115 -- ranges are checked
		AcquireTimeout: d.Pool.AcquireTimeout, ConnectTimeout: d.ConnectTimeout, IdleTimeout: d.Pool.IdleTimeout, MaxLifetime: d.Pool.MaxLifetime,
		StatementTimeout: d.StatementTimeout, HoldTimeout: d.HoldTimeout, NoPreparedStatements: !d.PreparedStatements,
		Traces: c.Telemetry.Tracing.Enabled, SignalsInTransaction: c.Signals.Uses(wal.Name, "relay"), NotifyAfterCommit: c.Signals.Uses(notify.Name), SlowAcquire: d.Pool.SlowAcquireThreshold,
	}
}

// complete sets missing bounds to the defaults of the configuration and rejects invalid
// ones.
func (o Options) complete() (Options, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return o, err
	}
	d := Configure(defaults.Common)
	o.MaxConns = cmp.Or(o.MaxConns, d.MaxConns)
	o.AcquireTimeout, o.ConnectTimeout = cmp.Or(o.AcquireTimeout, d.AcquireTimeout), cmp.Or(o.ConnectTimeout, d.ConnectTimeout)
	o.IdleTimeout, o.MaxLifetime = cmp.Or(o.IdleTimeout, d.IdleTimeout), cmp.Or(o.MaxLifetime, d.MaxLifetime)
	o.StatementTimeout, o.HoldTimeout = cmp.Or(o.StatementTimeout, d.StatementTimeout), cmp.Or(o.HoldTimeout, d.HoldTimeout)
	o.ApplicationName = cmp.Or(o.ApplicationName, "tasker")
	if o.OnForget == nil {
		o.OnForget = func() {}
	}
	if o.NotFollowed == nil {
		o.NotFollowed = func(order.Missing) {}
	}
	if o.Unpredicted == nil {
		o.Unpredicted = func() {}
	}
	if o.OnRejected == nil {
		o.OnRejected = func(string, string, error) {}
	}
	if o.Observe == nil {
		o.Observe = func(string, time.Duration, error) {}
	}
	if o.Like != nil && o.URL != "" {
		return o, errors.New("configure the store: invalid URL: want none with the configuration of a pool")
	}
	err = errors.Join(settings.Positive("MaxConns", o.MaxConns), settings.Positive("AcquireTimeout", o.AcquireTimeout),
		settings.Positive("ConnectTimeout", o.ConnectTimeout), settings.Positive("IdleTimeout", o.IdleTimeout),
		settings.Positive("MaxLifetime", o.MaxLifetime), settings.Positive("StatementTimeout", o.StatementTimeout),
		settings.Positive("HoldTimeout", o.HoldTimeout))
	if err != nil {
		return o, fmt.Errorf("configure the store: %w", err)
	}
	return o, nil
}

// Like returns how a pool connects, for the engine's own connections: its target, user,
// TLS, DialFunc and session parameters, with the hooks BeforeConnect and AfterConnect.
// Hooks for acquired or closed connections (PrepareConn, BeforeAcquire, AfterRelease,
// BeforeClose, ShouldPing), the tracer, and the execution mode stay with the pool.
func Like(pool *Pool) *PoolConfig {
	cfg := pool.Config()
	cfg.PrepareConn, cfg.BeforeAcquire, cfg.AfterRelease, cfg.BeforeClose, cfg.ShouldPing = nil, nil, nil, nil, nil //nolint:staticcheck // it is still called
	cfg.MinIdleConns = 0
	c := cfg.ConnConfig
	c.Tracer, c.OnNotification = nil, nil
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = statementCache, statementCache
	return cfg
}

// statementCache is how many statements a connection remembers, as by default.
const statementCache = 512
