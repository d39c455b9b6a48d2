-- A step waits in the line of what it calls; see docs/decisions/0023-callables.md.
-- +goose Up

-- What the steps of a namespace call. A worker offers the callables that it has
-- handlers for and claims their steps alone. The index is by a digest, because the
-- texts together may be longer than an entry of an index.
create table tasker.callables (
    callable_id  int generated always as identity primary key,
    namespace_id int  not null references tasker.namespaces,
    callable     text not null,
    method       text not null,
    resolver     text not null,
    created_at   timestamptz not null default now()
);
create unique index callables_named on tasker.callables (namespace_id, md5(callable || E'\x1f' || method || E'\x1f' || resolver));

-- callables: what each step calls, in the order of the step numbers; 0: nothing,
-- because the engine runs it.
alter table tasker.plans add column callables int[] not null default '{}';

insert into tasker.callables (namespace_id, callable, method, resolver)
select distinct p.namespace_id, s.handler ->> 'callable', coalesce(s.handler ->> 'method', ''), coalesce(s.handler ->> 'resolver', '')
from tasker.plans p cross join lateral (select d -> 'handler' as handler from jsonb_array_elements(p.template -> 'steps') d) s
where s.handler ->> 'callable' is not null;

update tasker.plans p
set callables = array(
    select coalesce(c.callable_id, 0)
    from unnest(p.steps) with ordinality n(name, at)
    join lateral (select d -> 'handler' as handler from jsonb_array_elements(p.template -> 'steps') d where d ->> 'name' = n.name) s on true
    left join tasker.callables c on c.namespace_id = p.namespace_id and c.callable = s.handler ->> 'callable'
         and c.method = coalesce(s.handler ->> 'method', '') and c.resolver = coalesce(s.handler ->> 'resolver', '')
    order by n.at);

-- callable: what the row's step calls; 0 where there is no step, or the engine runs it.
alter table tasker.board add column callable int not null default 0;
update tasker.board b
set callable = p.callables[coalesce((b.batch ->> 'template')::int, b.step_no) + 1]
from tasker.board t join tasker.plans p on p.plan_id = t.plan_id
where t.task_uuid = b.task_uuid and t.slot = 0 and b.step_no is not null;

drop index tasker.board_claimable;
create index board_claimable on tasker.board (callable, lane, seq) where state = 2;

-- callables: what the worker claims, by number. handlers: the names that it has
-- handlers by, of which templates may name others.
alter table tasker.workers add column callables int[] not null default '{}', add column handlers text[] not null default '{}';

-- +goose Down
alter table tasker.workers drop column handlers, drop column callables;
drop index tasker.board_claimable;
alter table tasker.board drop column callable;
create index board_claimable on tasker.board (queue, lane, seq) where state = 2;
alter table tasker.plans drop column callables;
drop table tasker.callables;
