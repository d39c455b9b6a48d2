package board

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// HeldClaim is a claim of a worker whose handler runs in another process.
type HeldClaim struct {
	TaskUUID uuid.UUID
	Token    int64
}

// Adopted is a claim that has changed its worker.
type Adopted struct {
	Claimed
	Former int64 // its token before
}

// inNamespaces holds for the rows of some namespaces; null: of all.
const inNamespaces = `(@namespaces::text[] is null or b.queue = any (array(select namespace_id from tasker.namespaces where name = any (@namespaces::text[]))))`

var claimsOfOthers = `
    select b.ctid as at, b.token as former from ` + stmt.HiddenList[HeldClaim]("h") + `
    join tasker.board b on b.task_uuid = h.task_uuid and b.token = h.token
    where b.state = {in_progress} and b.worker <> @worker
      and ` + inNamespaces

// adoptClaims gives claims of other workers to this one. The execution goes on, so it is
// the same attempt; the new token is the fence against the former worker. A row that is locked is
// being changed, and one that has changed since the statement began is picked but not updated, for
// its newest version has another place: both are left out, and rest says so.
// Index: the primary keys.
var adoptClaims = pg.Compile(`
with present as materialized (` + claimsOfOthers + `), picked as materialized (` + claimsOfOthers + `
    for update of b skip locked
), numbered as materialized (
    select at, former, nextval('tasker.claim_token') as token from picked
), claimed as (
    update tasker.board s
    set token = n.token, worker = @worker::uuid, ahead = null, lease_until = clock_timestamp() + @lease_ms::bigint * interval '1 ms'
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `, n.former
), rest as (
    select ((select count(*) from claimed) < (select count(*) from present))::int as rest -- RestLocked
)` + claimedRows + ` c.former,` + fromBoard)

// Adopt gives the held claims of other workers in the namespaces, nil in all, to this worker:
// those whose leases have not been ended. Claims missing in the answer are lost, unless rows were
// locked: then call it again.
func (s *Board) Adopt(ctx context.Context, worker uuid.UUID, held []HeldClaim, namespaces []string, lease time.Duration) (adopted []Adopted, locked bool, err error) {
	type row struct {
		claimedRow
		Former int64 `sql:",omitzero"`
	}
	err = s.db.Call(ctx, "adopt", "adopt claims", func(ctx context.Context, db *pg.Conn) error {
		found := newClaims()
		call := adoptClaims.With(pg.Args{"h": held, "worker": worker, "namespaces": namespaces, "lease_ms": lease.Milliseconds()})
		var former []int64
		err := stmt.Each(ctx, db, call, func(r *row) {
			found.add(&r.claimedRow)
			former = append(former, r.Former)
		})
		if err == nil {
			err = found.complete(ctx, db)
		}
		adopted, locked = make([]Adopted, len(found.list)), found.rest == RestLocked
		for i := range found.list {
			adopted[i] = Adopted{found.list[i], former[i]}
		}
		return err
	})
	return adopted, locked, err
}

// repeatClaims returns to a worker the claims that it holds without knowing, because the answer
// to a claim was lost. It is the same attempt; the new token is the fence against an answer that
// arrives after all. Claims that are locked are being reported.
// Index: board_leases.
var repeatClaims = pg.Compile(`
with picked as materialized (
    select b.ctid as at from tasker.board b
    where b.state = {in_progress} and b.lease_until > (select clock_timestamp()) and b.worker = @worker
      and not exists (select from ` + stmt.HiddenList[HeldClaim]("h") + ` where h.task_uuid = b.task_uuid and h.token = b.token)
      and ` + inNamespaces + `
    order by b.lease_until limit @limit offset @skip for update skip locked
), numbered as materialized (
    select at, nextval('tasker.claim_token') as token from picked
), claimed as (
    update tasker.board s
    set token = n.token, lease_until = clock_timestamp() + @lease_ms::bigint * interval '1 ms'
    from numbered n where s.ctid = n.at
    returning ` + ofBoard + `
), rest as (
    select 0 as rest
)` + claimedRows + fromBoard)

// Repeat claims again what a worker holds in the namespaces, nil in all, beside the claims that
// it names, up to a limit. One that the database rejects is left out, and ends with its lease.
func (s *Board) Repeat(ctx context.Context, worker uuid.UUID, named []HeldClaim, namespaces []string, limit int, lease time.Duration) (again []Claimed, err error) {
	_, err = s.db.ByPosition("repeat_claims", "claim %d of worker "+worker.String(), limit, func(limit, skip int) (int, error) {
		call := repeatClaims.With(pg.Args{"h": named, "worker": worker, "namespaces": namespaces, "limit": limit, "skip": skip, "lease_ms": lease.Milliseconds()})
		var found claims
		err := s.db.Call(ctx, "repeat_claims", "repeat claims", func(ctx context.Context, db *pg.Conn) error {
			found = newClaims()
			err := stmt.Each(ctx, db, call, found.add)
			if err == nil {
				err = found.complete(ctx, db)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
		for i := range found.list { // those of the next part are others
			named = append(slices.Clip(named), HeldClaim{found.list[i].TaskUUID, found.list[i].Token})
		}
		again = append(again, found.list...)
		return len(found.list), nil
	})
	return again, err
}
