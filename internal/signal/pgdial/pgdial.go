// Package pgdial has what notify, wal and relay share: direct connections that listen
// (named, kept alive, with bounded connecting), the life of one that a goroutine owns, which
// is that of redis, too, and sending by one statement. Pools and business statements may not
// enter.
package pgdial

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/config"
)

// keepAlive detects a silently lost peer within 30 s. A listening connection sends
// nothing by itself, so nothing else would detect it.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Target is a DSN or the configuration of a pool.
type Target struct {
	// DSN is a URL or keywords. connect_timeout and application_name in it override the
	// fields below; parameters of pgxpool are ignored, so that the DSN of a pool can be
	// used unchanged.
	DSN string
	// Like is a pool configuration: connections are made like those of the pool,
	// including its hooks BeforeConnect and AfterConnect.
	Like *pgxpool.Config
	// ApplicationName shows in pg_stat_activity.
	ApplicationName string
	// ConnectTimeout bounds connecting to one host. Zero means the default of
	// common.database.connect_timeout_seconds.
	ConnectTimeout time.Duration
}

// Dialer makes connections to one target. It is safe for concurrent use.
type Dialer struct {
	config *pgx.ConnConfig
	before func(context.Context, *pgx.ConnConfig) error
	after  func(context.Context, *pgx.Conn) error
}

// New reads a target.
func New(t Target) (*Dialer, error) {
	defaults, err := config.Defaults()
	if err != nil {
		return nil, err
	}
	d := &Dialer{before: func(context.Context, *pgx.ConnConfig) error { return nil }, after: func(context.Context, *pgx.Conn) error { return nil }}
	switch {
	case t.Like != nil && t.DSN != "":
		return nil, errors.New("invalid DSN: want none with the configuration of a pool")
	case t.Like != nil:
		d.like(t)
	default:
		if d.config, err = pgx.ParseConfig(config.PostgresDSN(t.DSN)); err != nil {
			return nil, fmt.Errorf("reading the listener's DSN: %w", err)
		}
	}
	for _, timeout := range []time.Duration{t.ConnectTimeout, defaults.Common.Database.ConnectTimeout} {
		if d.config.ConnectTimeout == 0 {
			d.config.ConnectTimeout = timeout
		}
	}
	if d.config.RuntimeParams["application_name"] == "" {
		d.config.RuntimeParams["application_name"] = t.ApplicationName
	}
	maps.DeleteFunc(d.config.RuntimeParams, func(name, _ string) bool { return strings.HasPrefix(name, "pool_") })
	d.config.DialFunc = keptAlive(d.config.DialFunc)
	return d, nil
}

func (d *Dialer) like(t Target) {
	d.config = t.Like.ConnConfig.Copy()
	d.config.OnNotification = nil // otherwise notifications would go there
	d.config.RuntimeParams["application_name"] = t.ApplicationName
	if t.Like.BeforeConnect != nil {
		d.before = t.Like.BeforeConnect
	}
	if t.Like.AfterConnect != nil {
		d.after = t.Like.AfterConnect
	}
}

func keptAlive(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if tcp, ok := conn.(*net.TCPConn); ok {
			if err := tcp.SetKeepAliveConfig(keepAlive); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
		}
		return conn, nil
	}
}

// Name sets the application name of sessions, overriding the DSN.
func (d *Dialer) Name(applicationName string) {
	d.config.RuntimeParams["application_name"] = applicationName
}

// Connect makes an ordinary connection.
func (d *Dialer) Connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := d.within(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := d.after(ctx, conn); err != nil {
		Close(conn.PgConn())
		return nil, fmt.Errorf("after connecting: %w", err)
	}
	return conn, nil
}

// Replicate makes a connection for replication from the database. It cannot run
// statements, so AfterConnect of a pool is not called.
func (d *Dialer) Replicate(ctx context.Context) (*pgconn.PgConn, error) {
	cfg, err := d.within(ctx)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["replication"] = "database"
	return pgconn.ConnectConfig(ctx, &cfg.Config)
}

// within returns a configuration for connecting before ctx ends. Several hosts share
// that time equally, with one more share for what follows: a frozen or unreachable
// host does not answer at all, and must not take the time of the others.
func (d *Dialer) within(ctx context.Context) (*pgx.ConnConfig, error) {
	cfg := d.config.Copy()
	if err := d.before(ctx, cfg); err != nil {
		return nil, fmt.Errorf("before connecting: %w", err)
	}
	hosts := 1 + len(cfg.Fallbacks)
	if deadline, ok := ctx.Deadline(); ok && hosts > 1 {
		cfg.ConnectTimeout = min(cfg.ConnectTimeout, time.Until(deadline)/time.Duration(hosts+1))
	}
	return cfg, nil
}

// closeTimeout bounds the end of a session.
const closeTimeout = 2 * time.Second

// Close ends a session within 2 s. It returns no error, because the server notices the
// end either way.
func Close(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
	// A connection that broke is closed by a goroutine of pgconn.
	select {
	case <-conn.CleanupDone():
	case <-ctx.Done():
	}
}
