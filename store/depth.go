package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// queueDepth counts lane by lane, so that a long one hides no other and an empty
// namespace is included.
// Index: board_claimable.
var queueDepth = `
with recursive ` + everyLane(2, 5) + `, counted as materialized (
    select c.namespace_id, sum(s.depth)::bigint as depth
    from found l cross join lateral (
        select count(*) as depth from (
            select from tasker.board where state = 2 and callable = l.callable and lane = l.lane and seq >= l.mark
            order by seq limit $1::int) first) s
    cross join lateral (select namespace_id from tasker.callables where callable_id = any (array[l.callable]) limit 1) c
    group by c.namespace_id
)
select n.name, coalesce((select least(depth, $1::int) from counted c where c.namespace_id = n.namespace_id), 0)::int from tasker.namespaces n`

// QueueDepth counts the claimable steps of every namespace, each up to limit: exact
// numbers beyond it have no use, and counting them would cost most under overload.
func (s *Store) QueueDepth(ctx context.Context, limit int) (map[string]int, error) {
	depth := map[string]int{}
	err := s.call(ctx, "queue_depth", "count the claimable steps", func(ctx context.Context, db *conn) error {
		begin := time.Now()
		rows, err := db.Query(ctx, queueDepth, append([]any{limit}, s.everywhere()...)...)
		if err != nil {
			return err
		}
		var namespace string
		var steps int
		if _, err = pgx.ForEachRow(rows, []any{&namespace, &steps}, func() error {
			depth[namespace] = steps
			return nil
		}); err == nil {
			_ = s.moveClaimable(ctx, db, time.Since(begin)) // the counts are valid regardless of an error
		}
		return err
	})
	return depth, err
}

// ClaimsEver is the number of claims so far, including those handed back. It goes back if
// the database does.
func (s *Store) ClaimsEver(ctx context.Context) (claims uint64, err error) {
	err = s.repeatable(ctx, "claims_ever", "count the claims", func(ctx context.Context, db *conn) error {
		return db.QueryRow(ctx, `select last_value from tasker.claim_token`).Scan(&claims)
	})
	return claims, err
}
