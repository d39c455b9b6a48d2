package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// counters are what the database has counted about itself so far.
type counters struct {
	wal                         float64 // bytes
	inserted, updated, hot, del float64 // rows of all tables
	commits, statements         float64
}

// read reads the counters of a database; those of sessions that live may be
// late, so the daemons should have ended. What this program asks with this
// very statement is left out.
func (c *counters) read(ctx context.Context, db *pgx.Conn) error {
	const query = `/* bench counters */
		select pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
		       (select sum(n_tup_ins) from pg_stat_user_tables), (select sum(n_tup_upd) from pg_stat_user_tables),
		       (select sum(n_tup_hot_upd) from pg_stat_user_tables), (select sum(n_tup_del) from pg_stat_user_tables),
		       (select xact_commit from pg_stat_database where datname = current_database()),
		       (select coalesce(sum(calls), 0) from pg_stat_statements s join pg_database d on d.oid = s.dbid
		        where datname = current_database() and query not like '%bench counters%')`
	if err := db.QueryRow(ctx, query).Scan(&c.wal, &c.inserted, &c.updated, &c.hot, &c.del, &c.commits, &c.statements); err != nil {
		return fmt.Errorf("read the counters of the database: %w", err)
	}
	return nil
}

// since is what has been counted since an earlier time, per task.
func (c counters) since(before counters, tasks float64) counters {
	return counters{
		wal: (c.wal - before.wal) / tasks, inserted: (c.inserted - before.inserted) / tasks, updated: (c.updated - before.updated) / tasks,
		hot: (c.hot - before.hot) / tasks, del: (c.del - before.del) / tasks,
		commits: (c.commits - before.commits) / tasks, statements: (c.statements - before.statements) / tasks,
	}
}

// settle reads the counters until they stay as they are.
func (c *counters) settle(ctx context.Context, db *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for same := 0; same < 2; {
		last := *c
		if err := wait(ctx, 300*time.Millisecond); err != nil {
			return err
		}
		if err := c.read(ctx, db); err != nil {
			return err
		}
		if last.inserted == c.inserted && last.updated == c.updated && last.del == c.del {
			same++
		} else {
			same = 0
		}
	}
	return nil
}
