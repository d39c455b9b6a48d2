-- Versions of templates that tasks have used are immutable; see docs/data-model.md.
-- +goose Up

-- The place of a version among those of its template: numbers count as numbers,
-- 1.0 is 1.0.0, 1.0-rc.1 comes before 1.0, and what follows a + says nothing.
-- +goose StatementBegin
create function tasker.version_key(version text) returns text
language sql immutable strict parallel safe as $$
    select coalesce(string_agg(case when part ~ '^[0-9]+$' then lpad(ltrim(part, '0'), 50, '0') else part end, '' order by no), '')
    from (
        select regexp_replace(regexp_replace(core[1], '^[vV](?=[0-9])', ''), '(\.0+)+$', '')
               || case when core[2] = '' then '#' else '!' || substr(core[2], 2) end as text
        from regexp_matches(split_part(version, '+', 1), '^([^-]*)(.*)$') core
    ) v
    cross join lateral regexp_matches(v.text, '[0-9]+|[^0-9]+', 'g') with ordinality m(found, no)
    cross join lateral (select m.found[1] as part) p
$$;
-- +goose StatementEnd

-- deprecated_at is the same in all plans of a version: none of them is chosen
-- where a request names no version.
alter table tasker.plans
    add column registered_by text not null default '', -- of a daemon or an operator, for people; '' before there was this column
    add column deprecated_at timestamptz,
    add column version_key   text collate "C" generated always as (tasker.version_key(version)) stored;
create index plans_highest on tasker.plans (namespace_id, name, version_key, version collate "C") where current and deprecated_at is null;

-- Which plans tasks have used. There is one row at least for each of these; several
-- transactions that create the first tasks at the same time write one each, so that
-- none waits for another.
create table tasker.plan_uses (
    plan_id int not null, -- no foreign key: plans are never deleted
    used_in xid8 not null default pg_current_xact_id()
);
create index plan_uses_plan on tasker.plan_uses (plan_id);
insert into tasker.plan_uses (plan_id) select plan_id from tasker.plans; -- of older ones it is not known

-- The current plan of a version, to create tasks of it in this transaction: until
-- its end no registration takes the plan's place, and after its commit none does. settled
-- says that this is so whatever becomes of the transaction. There is no row
-- without such a plan. Programs that create tasks need no right to write here.
-- +goose StatementBegin
create function tasker.plan_for_use(in_namespace int, of_template text, of_version text)
returns table (plan_id int, settled boolean)
language plpgsql security definer rows 1 set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
    chosen int;
    still  boolean;
begin
    loop
        select p.plan_id into chosen from tasker.plans p
        where p.namespace_id = in_namespace and p.name = of_template and p.version = of_version and p.current;
        if not found then
            return;
        end if;
        if exists (select from tasker.plan_uses u where u.plan_id = chosen and u.used_in <> pg_current_xact_id()) then
            return query select chosen, true;
            return;
        end if;
        select p.current into still from tasker.plans p where p.plan_id = chosen for share;
        if still then
            insert into tasker.plan_uses (plan_id) select chosen
            where not exists (select from tasker.plan_uses u where u.plan_id = chosen);
            return query select chosen, false;
            return;
        end if; -- a registration came first
    end loop;
end
$$;
-- +goose StatementEnd

-- What a worker brought and the fleet refused.
alter table tasker.workers add column refused_templates jsonb not null default '[]';

-- +goose Down
alter table tasker.workers drop column refused_templates;
drop function tasker.plan_for_use(int, text, text);
drop table tasker.plan_uses;
alter table tasker.plans drop column version_key, drop column deprecated_at, drop column registered_by;
drop function tasker.version_key(text);
