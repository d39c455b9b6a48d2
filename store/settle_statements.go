package store

// settled and ofSettled begin both kinds: the ended claims, each with the time of the
// change. (select $n) hides their number from the planner, see reportSteps.
const (
	settled = `
with o as materialized (
    select *, 0::smallint as slot, clock_timestamp() as at`
	ofSettled = `
    from unnest((select $1::uuid[]), (select $2::smallint[]), (select $3::bigint[]), (select $4::smallint[]),
                         (select $5::bytea[]), (select $6::text[]), (select $7::bytea[])`
)

// stillHeld is the fence: the claim holds, and the task is in the state in which it was
// claimed. A task with a dead letter is left to the apply, as is one with dependents, and
// a step with checkpoints, which a settlement does not record.
const stillHeld = `t.task_uuid = any (array[o.task_uuid]) and t.slot = o.slot and t.step_no = o.step_no and t.lease_until is not null and t.token = o.token
      and t.task_state = o.from_state and t.progress = o.before and t.dead_letter is null and t.awaited is null and t.checkpoint is null`

// lockSettled locks rows of tasks in the order in which all do.
// Index: the primary key.
const lockSettled = `
select from tasker.board where task_uuid = any ($1::uuid[]) and slot = 0 order by task_uuid for update`

// settleEnds removes tasks whose last step has succeeded from the board, with the attempt
// and the end of the task in one row of the ledger.
// Index: the primary key.
const settleEnds = settled + ofSettled + `)
    o(task_uuid, step_no, token, from_state, before, result, progress)
), gone as (
    delete from tasker.board t using o where ` + stillHeld + `
    returning t.task_uuid, t.step_no, t.attempt, t.token, t.worker, t.enqueued_at, t.claimed_at, t.watched, o.result, o.progress, o.at
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, result, task_state, task_progress)
    select task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, at, at,
           1, result::jsonb, $8::smallint, progress
    from gone
)
select token, coalesce(watched, false) from gone`

// settleMoves records attempts and moves the rows of their tasks to the next step, which
// is claimable, or claimed at once (taken) for worker $19 and $20 ms if that is wanted
// and the namespace is not paused. A claim does not change while it is held, so attempt
// and times come with it and the old row need not be read again. If more than half of the
// lease is left it is kept: then no indexed column changes.
// Index: the primary keys.
const settleMoves = settled + `, wanted and callable <> all (` + pausedCallables + `) as taken` + ofSettled + `,
                         (select $8::smallint[]), (select $9::smallint[]), (select $10::boolean[]), (select $11::boolean[]),
                         (select $12::smallint[]), (select $13::text[]), (select $14::text[]),
                         (select $15::smallint[]), (select $16::timestamptz[]), (select $17::timestamptz[]), (select $21::int[]), (select $22::boolean[]))
    o(task_uuid, step_no, token, from_state, before, result, progress, task_state, next_no, wanted, heir, lane, parents, tags,
      attempt, enqueued_at, claimed_at, callable, last_attempt)
), moved as (
    update tasker.board t
    set progress = o.progress, processor = $18::uuid, deadline = null, updated_at = o.at,
        state_since = case when t.task_state = o.task_state then t.state_since else o.at end, task_state = o.task_state,
        parents = case when o.heir and not o.taken and octet_length(o.result) <= ` + maxInlineResult + ` then null else o.parents::smallint[] end,
        inputs = case when o.heir and not o.taken and octet_length(o.result) <= ` + maxInlineResult + `
                      then jsonb_build_object(o.step_no::text, o.result::jsonb) end,
        step_no = o.next_no, callable = o.callable, lane = o.lane, tags = string_to_array(o.tags, E'\x1f'),
        state = case when o.taken then 3 else 2 end,
        seq = case when o.taken then t.seq else nextval('tasker.step_seq') end,
        attempt = case when o.taken then 1 else 0 end, last_attempt = nullif(o.last_attempt, false), ahead = null,
        token = case when o.taken then nextval('tasker.claim_token') end,
        worker = case when o.taken then $19::uuid end,
        lease_until = case when not o.taken then null
                           when t.lease_until > o.at + $20::bigint * interval '0.5 ms' then t.lease_until
                           else o.at + $20::bigint * interval '1 ms' end,
        enqueued_at = o.at, claimed_at = case when o.taken then o.at end
    from o where ` + stillHeld + `
    returning t.task_uuid, t.token as fence, t.enqueued_at as since, t.claimed_at as taken_at, t.lease_until,
              o.step_no, o.token, o.result, o.attempt, o.enqueued_at, o.claimed_at, o.at
), recorded as (
    insert into tasker.step_attempts (task_uuid, step_no, attempt, token, worker, enqueued_at, claimed_at, reported_at, applied_at,
                                      outcome, result)
    select task_uuid, step_no, attempt, token, $19::uuid, enqueued_at, claimed_at, at, at, 1, result::jsonb
    from moved
)
select token, fence, since, taken_at, extract(epoch from lease_until - clock_timestamp())::float8 from moved`
