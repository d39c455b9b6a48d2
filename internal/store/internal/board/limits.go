package board

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// Limits of callables. Steps of a limited callable wait, like all, in its line, where no
// other claim takes them: it counts as paused. A claim of limited steps waits for its turn with each
// callable, so that the snapshots of its statements are younger than all claims before.
//
// Where a limit has a key or an order, or lets no step wait, a claim sorts the oldest steps of
// the line into the lines of their keys, and the newest ones if there are many, so that
// steps behind a flood of one key need not wait until all of it is sorted; and it claims from
// those keys that have room, by turns. Steps of the other limits (direct) are claimed from the line of
// their callable. What runs is counted on the board, so a slot comes back with the report, the lease
// or the end of a task, by whatever component, and no counter can be wrong.
//
// The creation of many tasks places most of their steps in the lines of keys itself (placeByKeys).
// Where more wait than a claim sorts, a worker sorts beside the claims (SortLimited). One
// transaction at a time sorts the oldest steps of a callable, so that the steps of an ordered
// key come into its line in their order. One that removes the limit waits for them all.

// A snapshot that is held keeps all row versions of limits and keys, and a claim makes some of
// each key that it takes from. So both are looked up backwards, newest version first, and
// changed where the snapshot has found them: all changes have the turn of the callable.

// limitOf is the limit l of a callable.
func limitOf(callable string) string {
	return `(select * from (select *, ctid as limit_at from tasker.limits where callable_id <= ` + callable + ` order by callable_id desc limit 1) l
        where callable_id = ` + callable + `) l`
}

// keyOf is a key k of a callable.
func keyOf(callable, key string) string {
	return `(select * from (select *, ctid as at from tasker.limit_keys where (callable_id, key) <= (` + callable + `, ` + key + `) order by callable_id desc, key desc limit 1) k
        where callable_id = ` + callable + ` and key = ` + key + `) k`
}

const (
	// limitedDirectly: the limit l is direct.
	limitedDirectly = `(l.key_path is null and l.key_tag is null and not l.ordered and l.beyond = 'wait')`
	// limitedTokens are the beginnings that a key k of a limit l has saved by now; null
	// without a rate, which least leaves out.
	limitedTokens = `case when l.per_second is not null then least(l.burst, k.tokens + l.per_second * extract(epoch from now.now - k.tokens_at)) end`
	// limitedRoom is how many steps of a key k may begin now (room), and how many more may run
	// (spare; null: any number). What runs is counted from the oldest token on that ran at the
	// claim before: tokens rise from claim to claim, and row versions of steps that have ended
	// lie before it.
	limitedRoom = `(select r.*, least(@limit::int, r.spare, floor(` + limitedTokens + `))::int as room
        from (select case when l.ordered then 1 else l.max_running end - count(*) as spare, min(token) as oldest
            from tasker.board where (l.ordered or l.max_running is not null) and state = {in_progress} and limit_line = k.line and token >= k.running_from) r offset 0) x`
	// limitedPaused: an operator has paused the callable, or its namespace.
	limitedPaused = `exists (
        select from tasker.callables c join tasker.namespaces n on n.namespace_id = c.namespace_id
        where c.callable_id = l.callable_id and (c.paused_by is not null or n.paused_at is not null))`
)

// limitedCallableOf is the callable of a row s of the board: that of the key in whose line
// the step waits, if it waits in one.
const limitedCallableOf = `case when s.callable < 0 then (select callable_id from tasker.limit_keys where line = -s.callable) else s.callable end`

// keyLines is a part of a with that finds the steps that wait in the lines of keys, as steps
// of their callables: how many, counted up to limit and of each key up to most, and since
// when the first of a key has waited that has waited longest, of the 10,000 keys that are
// next. Without limits it reads two empty indexes.
// Index: limit_keys_turns, board_claimable.
func keyLines(most string) string {
	return `key_lines as materialized (
    select l.callable_id as callable, c.steps, f.since
    from tasker.limits l
    cross join lateral (
        select count(*) as steps from (
            select from tasker.limit_keys k cross join lateral (
                select from tasker.board where state = {claimable} and callable = -k.line limit ` + most + `) s
            where k.callable_id = l.callable_id and k.waiting limit @limit::int) s) c
    cross join lateral (
        select min(s.since) as since
        from (select line from tasker.limit_keys where callable_id = l.callable_id and waiting order by from_turn, line limit 10000) k cross join lateral (
            select coalesce(enqueued_at, requested_at) as since from tasker.board where state = {claimable} and callable = -k.line order by lane, seq limit 1) s) f
    where c.steps > 0
)`
}

const (
	allOfKey = `@limit::int`
	// runnableOfKey are as many as may run at once.
	runnableOfKey = `least(@limit::int, case when l.ordered then 1 else l.max_running end)`
)

// limitsWait says of limited callables which have direct limits, whether steps wait in the lines of their
// keys, of the keys that are next, and in how many seconds the first key without tokens has one, also of
// direct limits in whose callables' lines there are signs of steps (hot).
// Index: limit_keys_turns, the primary keys.
var limitsWait = pg.Compile(`
select l.callable_id as callable, l.direct, count(*) filter (where k.lined) > 0 as waiting, min(k.seconds)::float8 as seconds
from (select clock_timestamp() as now) now cross join unnest(@callables::int[]) c cross join lateral (
    select l.*, exists (select from ` + keyOf("l.callable_id", "''") + ` where ` + limitedDirectly + ` and not k.waiting) as direct from ` + limitOf("c") + `) l left join lateral (
    (select ` + limitedSeconds + ` as seconds, true as lined
     from tasker.limit_keys k where k.callable_id = l.callable_id and k.waiting` + fromTurn + ` order by k.from_turn, k.line limit 100)
    union all
    (select ` + limitedSeconds + `, false
     from ` + keyOf("l.callable_id", "''") + ` where l.direct and l.callable_id = any (@hot::int[]))) k on true
group by l.callable_id, l.direct`)

// limitedSeconds is when a key has its next token, if it has none.
const limitedSeconds = `case when ` + limitedTokens + ` < 1 then (1 - ` + limitedTokens + `) / l.per_second end`

// limitLeft is a row of limitsWait.
type limitLeft struct {
	Callable        int32
	Direct, Waiting bool
	Seconds         *float64
}

// directLimits are the callables whose limits were direct at the latest claim.
type directLimits struct {
	mu sync.Mutex
	m  map[int32]bool
}

func (d *directLimits) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.m)
}

// limitedPart are limited callables whose steps one transaction claims.
type limitedPart struct {
	direct    bool
	callables []int32
}

// parts divides callables into those of direct limits and the others; either come first as often.
func (d *directLimits) parts(callables []int32) []limitedPart {
	direct, others := limitedPart{direct: true}, limitedPart{}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range callables {
		if d.m[c] {
			direct.callables = append(direct.callables, c)
		} else {
			others.callables = append(others.callables, c)
		}
	}
	parts := slices.DeleteFunc([]limitedPart{direct, others}, func(p limitedPart) bool { return len(p.callables) == 0 })
	if rand.IntN(2) == 0 {
		slices.Reverse(parts)
	}
	return parts
}

// learn notes which limits of a part are direct; changed says that some were thought not to be, or to be.
func (d *directLimits) learn(part limitedPart, left []limitLeft) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range part.callables {
		delete(d.m, c)
	}
	for i := range left {
		if left[i].Direct {
			d.m[left[i].Callable] = true
		}
		changed = changed || left[i].Direct != part.direct
	}
	return changed
}

// LimitedPatience is after how long a worker looks again for steps of keys that are full:
// most often the worker whose step ends looks at once, and this is for those that end
// without one.
const LimitedPatience = 250 * time.Millisecond

// restLeft says that limited steps may be left for want of room.
const restLeft = RestUnsorted << 1

// ClaimLimited claims up to Limit steps of limited callables, of which Ahead begin later. full
// makes it look for steps of direct limits wherever they are, instead of from the marks.
// again is after how long it is worth repeating; 0: when there is room; negative: nothing waits.
// rest says whether more may wait than it has sorted, and whether suspects do. After an error steps may be claimed.
func (s *Board) ClaimLimited(ctx context.Context, req ClaimRequest, full bool) (claimed []Claimed, rest Rest, again time.Duration, err error) {
	var look limitedLook
	err = s.db.Call(ctx, "claim_limited", "claim limited steps", func(ctx context.Context, db *pg.Conn) error {
		err := s.claimLimited(ctx, db, &req, full, &look)
		for range lookAgain {
			if err == nil && look.changed {
				err = s.claimLimited(ctx, db, &req, full, &look)
			}
		}
		if err == nil && len(look.found.incomplete) > 0 {
			err = look.found.complete(ctx, db)
		}
		return err
	})
	if rest = look.found.rest & RestSuspects; look.sorted >= sortedAtOnce/2 {
		rest |= RestUnsorted
	}
	return look.found.list, rest, look.again(&req), err
}

// limitedLook is what claims of limited steps have found.
type limitedLook struct {
	found  claims
	first  lanesFrom // of direct limits, after a full scan
	sorted int64     // steps
	left   []limitLeft
	// changed: limits have turned out to be direct, or not, so that steps of theirs may wait.
	changed bool
	unseen  bool // callables were not looked at, since enough was found
}

// lookAgain is how often a claim is repeated whose limits have turned out to be of the other kind: the first
// time that a process claims from a limit, when it was set, and when the line of its key has become empty.
const lookAgain = 2

func (l *limitedLook) add(o *limitedLook) {
	for _, at := range o.found.incomplete {
		l.found.incomplete = append(l.found.incomplete, len(l.found.list)+at)
	}
	l.found.list, l.found.rest = append(l.found.list, o.found.list...), l.found.rest|o.found.rest
	l.first, l.sorted, l.left = append(l.first, o.first...), l.sorted+o.sorted, append(l.left, o.left...)
}

// again is when to repeat it, see ClaimLimited.
func (l *limitedLook) again(req *ClaimRequest) time.Duration {
	found, waiting, patience := len(l.found.list), l.unseen || l.found.rest&restLeft != 0 || len(l.first) > 0, LimitedPatience
	for i := range l.left {
		waiting = waiting || l.left[i].Waiting
		if of := l.left[i].Seconds; of != nil {
			patience = min(patience, seconds(of))
		}
	}
	switch {
	case l.changed || l.sorted >= sortedAtOnce/2 || found == req.Limit || l.found.rest&RestLocked != 0 || waiting && found >= max(req.Limit-req.Ahead, 1):
		return 0
	case !waiting:
		return -1
	default:
		return patience
	}
}

// claimLimited claims steps of one part of the callables after the other while more would begin
// at once.
func (s *Board) claimLimited(ctx context.Context, db *pg.Conn, req *ClaimRequest, full bool, look *limitedLook) error {
	look.changed, look.unseen, look.left, look.first, look.found.rest = false, false, nil, nil, 0
	for _, part := range s.direct.parts(req.Callables) {
		rest := *req
		rest.Callables, rest.Limit = part.callables, req.Limit-len(look.found.list)
		if rest.Limit <= rest.Ahead {
			look.unseen = true
			break
		}
		one, err := s.claimPart(ctx, db, part, &rest, full)
		if err != nil {
			return err
		}
		look.changed = s.direct.learn(part, one.left) || look.changed
		look.add(&one)
	}
	return nil
}

// claimPart claims, and notes what it has learned of the lines of callables.
func (s *Board) claimPart(ctx context.Context, db *pg.Conn, part limitedPart, req *ClaimRequest, full bool) (limitedLook, error) {
	look, lanes := limitedLook{found: newClaims()}, s.marks.of(req.Callables)
	callables := slices.Sorted(slices.Values(req.Callables)) // locked in one order
	if full {
		lanes = nil
	}
	b := &pgx.Batch{}
	takeTurns.With(pg.Args{"class": int32(pg.TurnLock), "callables": callables}).Queue(b)
	queue := s.queueKeys
	if part.direct {
		queue = s.queueDirect
	}
	learn := queue(b, req, lanes, full, &look)
	limitsWait.With(pg.Args{"callables": callables, "hot": lanes.callables()}).Queue(b).Query(stmt.Into(&look.left))
	if full {
		s.registry.AskLimits(b)
	}
	err := db.SendBatch(ctx, b).Close()
	if err == nil {
		learn()
	}
	return look, err
}

// queueDirect adds the claim of steps of direct limits to a batch.
func (s *Board) queueDirect(b *pgx.Batch, req *ClaimRequest, lanes lanesFrom, full bool, look *limitedLook) (learn func()) {
	begin, claim := time.Now(), claimDirect
	if full {
		claim = claimDirectFully
	}
	claim.With(req.limited().And(pg.Args{"m": lanes})).Queue(b).Query(stmt.Rows(look.found.add))
	if full {
		firstDirect.With(pg.Args{"callables": req.Callables, "tags": pg.NonNil(req.Tags), "losses": req.losses(), "except": pg.NonNil(req.Except)}).Queue(b).Query(stmt.Rows(func(l *laneFrom) { look.first = append(look.first, *l) }))
	}
	return func() {
		all := len(look.found.list) < req.Limit
		s.marks.claimed(look.found.newest, lanes, full && !all)
		s.marks.begin(look.first)
		if all && look.found.rest&^RestSuspects == 0 {
			s.marks.emptied(req.Callables, look.found.newest, lanes, false, begin)
		}
	}
}

// queueKeys adds sorting, and the claim from the lines of keys, to a batch.
func (s *Board) queueKeys(b *pgx.Batch, req *ClaimRequest, lanes lanesFrom, full bool, look *limitedLook) (learn func()) {
	begin, claim := time.Now(), claimKeys
	if full {
		claim = claimKeysFully
	}
	most := max(sortedAtOnce/2, req.Limit)
	sorted, by := map[laneKey]int64{}, sorter{}
	firstKeys.With(pg.Args{"callables": req.Callables}).Queue(b)
	sortLimited.With(pg.Args{"class": int32(pg.SortLock), "callables": req.Callables, "limit": most, "m": lanes, "fully": full,
		"except": pg.NonNil(req.Except)}).Queue(b).Query(stmt.Rows(func(l *sortedLane) {
		look.sorted += l.Steps
		if l.Seq > 0 {
			sorted[l.laneKey], by = l.Seq, l.sorter
		} else {
			s.marks.heat(l.laneKey) // older ones may be there
		}
	}))
	claim.With(req.limited()).Queue(b).Query(stmt.Rows(look.found.add))
	return func() {
		s.marks.sortedUpTo(sorted, lanes, by, full && look.sorted >= int64(most))
		if len(look.found.list) < req.Limit && look.found.rest&^RestSuspects == 0 && look.sorted < int64(most) {
			s.marks.emptied(req.Callables, nil, lanes, false, begin)
		}
	}
}

// limited are the arguments of claims of limited steps but marks.
func (r *ClaimRequest) limited() pg.Args {
	return pg.Args{"worker": r.Worker, "lease_ms": r.Lease.Milliseconds(), "tags": pg.NonNil(r.Tags), "limit": r.Limit, "ahead": r.Ahead,
		"callables": r.Callables, "losses": r.losses(), "except": pg.NonNil(r.Except)}
}

// sortedAtOnce is how many steps a claim sorts at least, if they wait: half of them from each
// end of the line.
const sortedAtOnce = 500
