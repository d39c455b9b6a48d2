package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// queueDepth counts queue by queue, so that a long one hides no other and an
// empty one is shown as empty. The order holds the planner at the index: where
// most steps are of one queue it would look for those of an empty one in the
// whole table.
// Index: board_claimable.
var queueDepth = `
with live as materialized (` + everyLane("state", "$1", 2) + `), counted as materialized (
    select queue, count(*)::int as depth from live group by queue
)
select n.name, coalesce((select least(depth, $1) from counted where queue = n.namespace_id), 0) from tasker.namespaces n`

// QueueDepth counts the claimable steps of every namespace, each up to limit:
// how long a queue is beyond that does not matter to anybody, and counting it
// would cost the more the worse things are.
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
			_ = s.moveClaimable(ctx, db, nil, time.Since(begin)) // what was counted counts
		}
		return err
	})
	return depth, err
}
