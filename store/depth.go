package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// queueDepth counts queue by queue, so that a long one hides no other and an
// empty one is shown as empty. The order holds the planner at the index: where
// most steps are of one queue it would look for those of an empty one in the
// whole table.
// Index: board_claimable.
const queueDepth = `
select n.name, d.depth
from tasker.namespaces n cross join lateral (
    select count(*)::int as depth
    from (select from tasker.board where state = 2 and queue = n.namespace_id order by lane, seq limit $1) s) d`

// QueueDepth counts the claimable steps of every namespace, each up to limit:
// how long a queue is beyond that does not matter to anybody, and counting it
// would cost the more the worse things are.
func (s *Store) QueueDepth(ctx context.Context, limit int) (map[string]int, error) {
	depth := map[string]int{}
	err := s.call(ctx, "queue_depth", "count the claimable steps", func(ctx context.Context, db *conn) error {
		rows, err := db.Query(ctx, queueDepth, limit)
		if err != nil {
			return err
		}
		var namespace string
		var steps int
		_, err = pgx.ForEachRow(rows, []any{&namespace, &steps}, func() error {
			depth[namespace] = steps
			return nil
		})
		return err
	})
	return depth, err
}
