package board

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/signal"
)

// Keys such as customers come and go, so those that have been idle for long are deleted: a key without a
// row is as new, at the turn that claims have reached and with all of its burst. A deletion holds the locks
// under which a limit is removed, without one of which no step enters the line of a key and none is claimed
// from it.

const (
	// forgottenAtOnce is how many keys one transaction deletes while it holds up the claims of their callable.
	forgottenAtOnce = 200
	// idleKey: nothing of the key k has been claimed for long, and it has all of the burst of its limit l. Each
	// return of a key takes one of two billion lines, which are used again. The empty key stays; there is one.
	idleKey = `k.key <> '' and not k.waiting and k.tokens_at < now.now - interval '7 days' and coalesce(` + limitedTokens + ` >= l.burst, true)`
)

var (
	// keysBehind are keys behind a line that may be deleted, and the last one that was looked at.
	// Index: the primary keys.
	keysBehind = pg.Compile(`
with looked as materialized (
    select * from tasker.limit_keys where line > @after::int order by line limit @limit::int
)
select (select count(*) from looked) as looked, k.line, k.callable_id as callable, ` + idleKey + ` as idle
from (select clock_timestamp() as now) now cross join looked k cross join lateral ` + limitOf("k.callable_id") + `
where ` + idleKey + ` or k.line = (select max(line) from looked)
order by k.line`)
	// forgetKeys deletes those in whose lines nothing waits, of which nothing runs, and whose order no step holds.
	// Index: the primary keys, board_claimable, board_running.
	forgetKeys = pg.Compile(`
delete from tasker.limit_keys d using (
    select k.at
    from (select clock_timestamp() as now) now cross join unnest(@lines::int[]) i cross join lateral (
        select ctid as at, * from tasker.limit_keys where line = i limit 1) k cross join lateral ` + limitOf("k.callable_id") + `
    where ` + idleKey + `
        and (select true from tasker.board where state = {claimable} and callable = -k.line limit 1) is null
        and (select true from tasker.board where state = {in_progress} and limit_line = k.line limit 1) is null
        and not (` + limitedHeld + `)) f
where d.ctid = f.at`)
)

// ForgetKeys deletes keys that have been idle for a week, or counts those that it would look at. It looks
// behind a line, 0 for all, and returns the one to go on behind, also past an error; 0 at the end.
func (s *Board) ForgetKeys(ctx context.Context, after int32, dry bool) (forgotten int, next int32, err error) {
	type row struct {
		Looked         int
		Line, Callable int32
		Idle           bool
	}
	rows, err := pg.ReadAll[row](ctx, s.db, "idle_keys", "look for idle keys of limits", keysBehind.With(pg.Args{"after": after, "limit": lookedAtOnce}))
	idle := map[int32][]int32{}
	for _, r := range rows {
		if r.Looked == lookedAtOnce {
			next = r.Line
		}
		if r.Idle {
			idle[r.Callable] = append(idle[r.Callable], r.Line)
		}
	}
	for callable, lines := range idle {
		if dry {
			forgotten += len(lines)
			continue
		}
		for part := range slices.Chunk(lines, forgottenAtOnce) {
			err := pg.Apart(s.db, "forget_keys", part, func(part []int32) error {
				n, err := s.forgetKeysOf(ctx, callable, part)
				forgotten += n
				return err
			}, func(line int32) string { return fmt.Sprintf("line %d of limit_keys", line) })
			if err != nil {
				return forgotten, next, err
			}
		}
	}
	return forgotten, next, err
}

func (s *Board) forgetKeysOf(ctx context.Context, callable int32, lines []int32) (forgotten int, err error) {
	err = s.db.Transaction(ctx, "forget_keys", "delete idle keys of a limit", func(ctx context.Context, tx pgx.Tx) (_ []signal.Signal, err error) {
		if _, err = pg.Run(ctx, tx, registry.TurnOf(callable)); err == nil {
			forgotten, err = pg.Run(ctx, tx, forgetKeys.With(pg.Args{"lines": lines}))
		}
		return nil, err
	})
	return forgotten, err
}
