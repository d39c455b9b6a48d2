package wal_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/contract"
	"github.com/tasker-go/tasker/internal/signal/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Apart(m)) }

const killSQL = `select pg_terminate_backend(pid) from pg_stat_activity
	where datname = current_database() and application_name = 'tasker-listener'`

func TestContract(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Setup {
		db := pgtest.New(t)
		transport := wal.NewTransport(db.Pool(t))
		source, err := wal.New(wal.Config{DSN: db.DSN}, transport)
		if err != nil {
			t.Fatal(err)
		}
		return contract.Setup{
			Source:    source,
			Transport: transport,
			Kill: func(t *testing.T) {
				if n := db.Exec(t, killSQL); n != 1 {
					t.Fatalf("%d listening sessions, want 1", n)
				}
			},
		}
	})
}
