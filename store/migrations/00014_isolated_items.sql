-- Items of batches that could not be processed; see docs/templates.md.
-- +goose Up

-- {"token", "items": [{"item", "error", "replayed_as"?}]}: what the execution with
-- this claim has isolated. It is written with the report of its success, and
-- holds as long as that is the newest attempt of the batch. Null for most.
alter table tasker.batches add column isolated jsonb;

-- For people: what has been isolated, item by item.
create view tasker.v_isolated_items as
select d.task_uuid, tasker.step_uuid(d.task_uuid, d.step_no) as step_uuid, d.name as batch, x.no::int as item_no, x.item -> 'item' as item,
       x.item -> 'error' ->> 'message' as error, (x.item -> 'error' ->> 'retryable')::boolean as retryable,
       (x.item ->> 'replayed_as')::uuid as replayed_as, a.reported_at as isolated_at
from tasker.batches d
cross join lateral (select token, outcome, reported_at from tasker.step_attempts
                    where task_uuid = d.task_uuid and step_no = d.step_no order by token desc limit 1) a
cross join lateral jsonb_array_elements(d.isolated -> 'items') with ordinality x(item, no)
where a.outcome = 1 and a.token = (d.isolated ->> 'token')::bigint;

-- +goose Down
drop view tasker.v_isolated_items;
alter table tasker.batches drop column isolated;
