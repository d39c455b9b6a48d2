package wal_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/wal"
)

// The first host accepts connections and stays silent, like a frozen one. It must not
// use up the time for both connections.
func TestAFrozenHostIsPassedOver(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	frozen, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = frozen.Close() }()
	db := pgtest.New(t)
	cfg, err := pgx.ParseConfig(db.TCPDSN)
	require.NoError(t, err)
	dsn := fmt.Sprintf("postgres://%s:%s@%s,%s:%d/%s?sslmode=disable&target_session_attrs=read-write",
		cfg.User, cfg.Password, frozen.Addr(), cfg.Host, cfg.Port, cfg.Database)
	source, err := wal.New(wal.Config{DSN: dsn}, wal.NewTransport(db.Pool(t)))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a daemon's default
	defer cancel()
	conn, err := source.Connect(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, conn.Close(ctx))
}
