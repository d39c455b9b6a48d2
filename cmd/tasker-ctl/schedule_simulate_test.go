package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
)

// The ledger is read, saved and replayed, and what was saved gives the same forecast and
// picture.
func TestSimulateFromTheLedger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := newSession(t)
	s.env["DATABASE_URL"] = db.DSN
	run := func(args ...string) outcome { return s.run(t.Context(), "", args...) }
	require.Zero(t, run("migrate", "up").code)
	db.Exec(t, `insert into tasker.namespaces (name) values ('shop')`)
	db.Exec(t, `insert into tasker.callables (namespace_id, callable, method, resolver) select namespace_id, 'charge', '', '' from tasker.namespaces where name = 'shop'`)
	db.Exec(t, `insert into tasker.plans (namespace_id, name, version, environment, content_hash, steps, callables, template, current)
		select namespace_id, 'order', '1', '', decode(repeat('00', 32), 'hex'), array['pay'], array[callable_id], '{}', true from tasker.callables`)
	db.Exec(t, `insert into tasker.tasks (task_uuid, requested_at, plan_id, queue, priority, tags, context)
		select overlay(tasker.uuid_floor($1::timestamptz + i * interval '1 s')::text placing lpad(i::text, 4, '0') from 20)::uuid, $1::timestamptz + i * interval '1 s',
		       plan_id, namespace_id, i % 3, array['tenant:' || i % 2], '{}'
		from tasker.plans, generate_series(1, 600) i`, s.now)
	db.Exec(t, `insert into tasker.step_attempts (task_uuid, token, enqueued_at, claimed_at, reported_at, worker, step_no, attempt, outcome)
		select task_uuid, row_number() over (order by task_uuid), requested_at, requested_at, requested_at + interval '2 s', gen_random_uuid(), 0, 1, 1 from tasker.tasks`)

	dir := t.TempDir()
	saved, picture := filepath.Join(dir, "recording.jsonl"), filepath.Join(dir, "forecast.svg")
	about := []string{"--permits", "3", "--svg", picture}
	read := run(append([]string{"-o", "json", "schedule", "simulate", "-n", "shop", "--handler", "charge", "--tenant-tag", "tenant:", "--to",
		s.now.AddDate(0, 0, 1).Format("2006-01-02T15:04:05Z07:00"), "--save", saved}, about...)...)
	require.Zero(t, read.code, read.stderr)
	require.Contains(t, read.stdout, `"steps": 600,`)
	require.Contains(t, read.stdout, `"name": "1",`)
	drawn, err := os.ReadFile(picture)
	require.NoError(t, err)
	for d := xml.NewDecoder(strings.NewReader(string(drawn))); ; {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	again := run(append([]string{"-o", "json", "schedule", "simulate", "--file", saved}, about...)...)
	require.Equal(t, read, again)
	same, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Equal(t, drawn, same)

	none := run("schedule", "simulate", "-n", "shop", "--permits", "1", "--from", "2000-01-01T00:00:00Z", "--to", "2000-01-02T00:00:00Z")
	require.Zero(t, none.code, none.stderr)
	require.Contains(t, none.stdout, "0 steps, 1 step at once")
}
