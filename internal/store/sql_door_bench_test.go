package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"
)

// BenchmarkEnqueueBySQL creates tasks on eight connections, a hundred calls per transaction.
// calls is a call per statement, sent without waiting for the answers in between; statement
// is one statement that calls the function a hundred times.
func BenchmarkEnqueueBySQL(b *testing.B) {
	const connections, calls = 8, 100
	for name, each := range map[string]func(batch *pgx.Batch){
		"calls": func(batch *pgx.Batch) {
			for i := range calls {
				batch.Queue(`select tasker.enqueue('note', jsonb_build_object('n', $1::int), 'bench')`, i)
			}
		},
		"trips": nil,
		"statement": func(batch *pgx.Batch) {
			batch.Queue(`select tasker.enqueue('note', jsonb_build_object('n', i), 'bench') from generate_series(1, $1::int) i`, calls)
		},
	} {
		b.Run(name, func(b *testing.B) {
			s, db := open(b)
			noteType(b, s)
			conns := make([]*pgx.Conn, connections)
			for i := range conns {
				var err error
				conns[i], err = pgx.Connect(b.Context(), db.DSN)
				require.NoError(b, err)
				defer func() { _ = conns[i].Close(b.Context()) }()
			}
			transaction := func(conn *pgx.Conn) error {
				return pgx.BeginFunc(b.Context(), conn, func(tx pgx.Tx) error {
					if each == nil {
						for i := range calls {
							if _, err := tx.Exec(b.Context(), `select tasker.enqueue('note', jsonb_build_object('n', $1::int), 'bench')`, i); err != nil {
								return err
							}
						}
						return nil
					}
					batch := &pgx.Batch{}
					each(batch)
					return tx.SendBatch(b.Context(), batch).Close()
				})
			}
			for _, conn := range conns { // the plans of each session
				require.NoError(b, transaction(conn))
			}
			b.ResetTimer()
			begin := time.Now()
			workers := pool.New().WithErrors()
			for i, conn := range conns {
				workers.Go(func() error {
					for range (b.N + i) / connections {
						if err := transaction(conn); err != nil {
							return err
						}
					}
					return nil
				})
			}
			require.NoError(b, workers.Wait())
			b.ReportMetric(float64(b.N*calls)/time.Since(begin).Seconds(), "tasks/s")
			require.Equal(b, (b.N+connections)*calls, db.QueryInt(b, `select count(*) from tasker.board where state = 2`))
		})
	}
}
