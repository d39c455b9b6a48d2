-- +goose Up
-- API keys, of which only the hash is kept. A revoked one stays for the record.
create table tasker.api_keys (
    key_uuid     uuid primary key default gen_random_uuid(),
    hash         bytea not null unique check (length(hash) = 32),  -- SHA-256 of the key
    name         text not null,                                    -- the principal
    permissions  text[] not null,
    namespaces   text[] not null,                                  -- none: all
    created_at   timestamptz not null default now(),
    created_by   text not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz                                       -- to the minute
);

-- +goose Down
drop table tasker.api_keys;
