package store_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// A server that accepts connections and never answers, like a frozen one.
func TestAFrozenHostIsPassedOver(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	frozen, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = frozen.Close() }()
	cfg, err := pgx.ParseConfig(pgtest.New(t).TCPDSN)
	require.NoError(t, err)
	dsn := fmt.Sprintf("postgres://%s:%s@%s,%s:%d/%s?sslmode=disable&target_session_attrs=read-write",
		cfg.User, cfg.Password, frozen.Addr(), cfg.Host, cfg.Port, cfg.Database)
	s, err := store.Open(t.Context(), store.Options{URL: dsn, ConnectTimeout: time.Second})
	require.NoError(t, err)
	s.Close()
}

// Connections to a server that accepts no writes any more are dropped, though it answers.
func TestAReadOnlyServerIsLeft(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 1})
	require.NoError(t, err)
	defer s.Close()
	m, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	_, err = s.Execer().Exec(t.Context(), `set default_transaction_read_only = on`)
	require.NoError(t, err)
	_, err = s.EnsurePartitions(t.Context(), 30)
	require.ErrorIs(t, err, store.ErrUnavailable)
	made, err := s.EnsurePartitions(t.Context(), 30)
	require.NoError(t, err, "on another connection")
	require.Positive(t, made)
}
