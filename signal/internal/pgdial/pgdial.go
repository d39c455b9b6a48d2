// Package pgdial turns a DSN into the configuration of one long-lived direct
// connection that listens: named, kept alive, with bounded connecting. It is
// shared by notify and wal. Pools and business statements may not enter.
package pgdial

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/config"
)

// keepAlive finds a peer that is gone without a word within 30 s. A listening
// connection sends nothing by itself, so nothing else would.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Parse reads a DSN (URL or keywords). connect_timeout and application_name in
// the DSN win over the arguments; parameters of pgxpool are ignored, so that
// the DSN of a pool can be used as it is.
func Parse(dsn, applicationName string, connectTimeout time.Duration) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("reading the listener's DSN: %w", err)
	}
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	if err := config.Positive("ConnectTimeout", cfg.ConnectTimeout); err != nil {
		return nil, err
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = applicationName
	}
	for name := range cfg.RuntimeParams {
		if strings.HasPrefix(name, "pool_") {
			delete(cfg.RuntimeParams, name)
		}
	}
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout, KeepAliveConfig: keepAlive}
	cfg.DialFunc = dialer.DialContext
	return cfg, nil
}

// Within returns a copy of cfg for connecting before ctx ends. Where there are
// several hosts, each gets its share of that time, and one is left for what
// follows: a host that is frozen or cut off does not answer at all, and must
// not keep the others from their turn.
func Within(ctx context.Context, cfg *pgx.ConnConfig) *pgx.ConnConfig {
	cfg = cfg.Copy()
	hosts := 1 + len(cfg.Fallbacks)
	if deadline, ok := ctx.Deadline(); ok && hosts > 1 {
		cfg.ConnectTimeout = min(cfg.ConnectTimeout, time.Until(deadline)/time.Duration(hosts+1))
	}
	return cfg
}

// closeTimeout bounds saying good-bye to the server.
const closeTimeout = 2 * time.Second

// Close ends a session within 2 s. It returns nothing, because the server sees
// the end either way.
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
