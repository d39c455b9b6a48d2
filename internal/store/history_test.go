package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

// wellAhead has a store remember places far into the board: of claims, of
// reports and of times.
func wellAhead(t *testing.T, s *store.Store, p *store.Plan, draw func(upTo int)) {
	t.Helper()
	draw(far)
	create(t, s, p, 3)
	for _, c := range claim(t, s, p, 3) {
		report(t, s, succeed(c, `1`))
	}
	applyAll(t, s)
	require.NotEmpty(t, claim(t, s, p, 10))
	for range 2 {
		require.NoError(t, s.MoveFrontiers(t.Context()))
	}
	at, from := s.AtFrontier()
	require.True(t, at)
	require.Greater(t, from, int64(far))
}

// goesOn runs tasks to their second steps on a board on which everything that
// the store remembers is in the future.
func goesOn(t *testing.T, s *store.Store, p *store.Plan) {
	t.Helper()
	h, err := s.Horizon(t.Context(), store.Without{})
	require.NoError(t, err)
	require.Zero(t, h.NextDue, "a step is due")
	create(t, s, p, 3)
	claimed := claim(t, s, p, 3)
	require.Len(t, claimed, 3, "a full scan finds them")
	for _, c := range claimed {
		report(t, s, succeed(c, `1`))
	}
	taken, err := s.TakeReported(t.Context(), 10, true)
	require.NoError(t, err)
	defer taken.Release()
	require.Len(t, taken.Tasks, 3, "as does a full scan of reports")
	_, err = taken.Commit(t.Context(), uuid.Nil, decide(t, taken.Tasks))
	require.NoError(t, err)
	// And it continues, once the places are known again.
	for range 3 {
		require.NoError(t, s.MoveFrontiers(t.Context()))
	}
	create(t, s, p, 1)
	fast, _, err := s.Claim(t.Context(), store.ClaimRequest{Callables: p.Callables, Limit: 100, Lease: time.Minute}, false)
	require.NoError(t, err)
	require.NotEmpty(t, fast, "a scan from the marks finds new steps")
	require.Len(t, claim(t, s, p, 100), 6+1-len(fast))
}

// TestScansGoBackWithTheDatabase: an older state is restored, or a standby behind a
// pooler takes over that lacks the latest commits; connections stay open.
func TestScansGoBackWithTheDatabase(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, diamondYAML)
	wellAhead(t, s, p, func(upTo int) { db.QueryInt(t, `select setval('tasker.step_seq', $1)`, upTo) })

	db.Exec(t, `delete from tasker.board`)
	db.QueryInt(t, `select setval('tasker.step_seq', 1)`)
	create(t, s, p, 1)
	db.Exec(t, `update tasker.board set state = 1, due_at = now() - interval '1 hour', enqueued_at = null`)
	goesOn(t, s, p)
}

// TestAStandbyThatLacksCommitsTakesOver: nothing of the old primary is remembered, nor
// are the plans, whose numbers are assigned again.
func TestAStandbyThatLacksCommitsTakesOver(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := pgtest.Private(t, nil)
	db := server.New(t)
	standby := server.Standby(t)
	m, err := store.NewMigrator(db.DSN)
	require.NoError(t, err)
	_, err = m.Up(ctx)
	require.NoError(t, err)
	forgotten := 0
	dsn := pgtest.FailoverDSN(db.Name, server.Cluster, standby.Cluster)
	s, err := store.Open(ctx, store.Options{URL: dsn, MaxConns: 1, OnForget: func() { forgotten++ }})
	require.NoError(t, err)
	defer s.Close()
	p := plan(t, s, diamondYAML)
	create(t, s, p, 1)
	_, err = s.Execer().Exec(ctx, `update tasker.board set state = 1, due_at = now() - interval '1 hour', enqueued_at = null`)
	require.NoError(t, err)

	// From here on the standby receives nothing.
	behind, err := pgx.Connect(ctx, standby.DSN(db.Name))
	require.NoError(t, err)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		var there bool // recovery may cancel the statement
		err := behind.QueryRow(ctx, `select coalesce((select true from tasker.board where state = 1), false)`).Scan(&there)
		return err == nil && there, fmt.Sprintf("the standby has not caught up: %v", err)
	})
	_, err = behind.Exec(ctx, `alter system set primary_conninfo = ''`)
	require.NoError(t, err)
	_, err = behind.Exec(ctx, `select pg_reload_conf()`)
	require.NoError(t, err)
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { // no session is about to connect
		var deaf bool
		err := behind.QueryRow(ctx, `select current_setting('primary_conninfo') = '' and not exists (select from pg_stat_wal_receiver)`).Scan(&deaf)
		return err == nil && deaf, fmt.Sprintf("the standby still listens: %v", err)
	})
	require.NoError(t, behind.Close(ctx))
	// Its startup process may still have the former setting and connect: not without its slot.
	pgtest.Eventually(t, 30*time.Second, func() (bool, string) {
		_, err := db.Pool(t).Exec(ctx, `select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_type = 'physical' and not active`)
		return err == nil && db.QueryInt(t, `select count(*) from pg_replication_slots where slot_type = 'physical'`) == 0, fmt.Sprintf("the standby is connected: %v", err)
	})
	wellAhead(t, s, p, func(upTo int) {
		_, err := s.Execer().Exec(ctx, `select setval('tasker.step_seq', $1)`, upTo)
		require.NoError(t, err)
	})
	lost := plan(t, s, oneStepYAML)
	require.Zero(t, forgotten)
	require.NoError(t, server.Kill(ctx))
	require.NoError(t, standby.Promote(ctx))

	pgtest.Eventually(t, 30*time.Second, func() (bool, string) { err := s.Ping(ctx); return err == nil, "no connection" })
	next, _, err := template.Parse("next.yaml", []byte(chainYAML))
	require.NoError(t, err)
	_, err = s.RegisterTemplates(ctx, store.Registrant{ID: "test"}, []*workflow.Template{next.Resolve("test")})
	require.NoError(t, err)
	if again, err := s.PlanByID(ctx, lost.ID); err == nil {
		require.Equal(t, next.Name, again.Template.Name, "the number was assigned to another plan")
	} else {
		require.ErrorIs(t, err, store.ErrNotFound)
	}
	goesOn(t, s, p)
	require.Positive(t, forgotten)
}
