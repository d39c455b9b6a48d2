-- Browser sessions, and the lists of operators' actions.
-- +goose Up
-- Browser sessions: who has logged in with a browser, and until when the cookie is good. Only the hash of its token is kept.
create table tasker.browser_sessions (
    id           uuid primary key default gen_random_uuid(),
    hash         bytea not null unique check (length(hash) = 32),  -- SHA-256 of the token
    principal    text not null,
    opened_by    text not null check (opened_by in ('api_key', 'oidc')),
    key_uuid     uuid,                                             -- the API key of the database that has opened it
    key_hash     bytea,                                            -- or the hash of one of a file
    permissions  text[] not null,
    namespaces   text[] not null,                                  -- none: all
    created_at   timestamptz not null default now(),
    last_used_at timestamptz not null default now(),               -- to the minute
    expires_at   timestamptz not null,
    revoked_at   timestamptz
);
-- The sessions of a principal, newest first.
create index browser_sessions_by_principal on tasker.browser_sessions (principal, created_at);
-- All of them, newest first.
create index browser_sessions_by_creation on tasker.browser_sessions (created_at);
-- Retention.
create index browser_sessions_expiry on tasker.browser_sessions (expires_at);

-- +online index operator_actions_by_actor
tasker.operator_actions (actor, at, action_id)

-- +online index operator_actions_by_action
tasker.operator_actions (action, at, action_id)

-- The actions that are of one namespace.
-- +online index operator_actions_by_namespace
tasker.operator_actions ((target ->> 'namespace'), at, action_id) where target ->> 'namespace' is not null

-- +goose Down
drop index tasker.operator_actions_by_namespace;
drop index tasker.operator_actions_by_action;
drop index tasker.operator_actions_by_actor;
drop table tasker.browser_sessions;
