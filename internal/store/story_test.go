package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
)

// TestStories plays the text files of testdata/stories against a database: what
// workers and orchestrators do, and below it what they get. `go test ./store -run
// TestStories -rewrite` writes the answers anew.
//
// Commands: task (YAML of the steps follows; a task is created), claim WORKER
// [limit=N], success WORKER STEP, failure WORKER STEP, apply, lease-ends, retry-due,
// board, ledger. A worker reports under its latest claim of the step.
func TestStories(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s, db := open(t)
		b := &boardStory{store: s, db: db, claims: map[string]store.Claimed{}}
		datadriven.RunTest(t, path, b.play)
	})
}

// boardStory is one task on a board of its own.
type boardStory struct {
	store  *store.Store
	db     *pgtest.DB
	plan   *store.Plan
	claims map[string]store.Claimed // by worker and step
}

func (b *boardStory) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	word := func(i int) string { return d.CmdArgs[i].Key }
	switch d.Cmd {
	case "task":
		b.plan = plan(t, b.store, "name: story\nnamespace_name: stories\nversion: 1.0.0\n"+d.Input)
		create(t, b.store, b.plan, 1)
		return b.board(t)
	case "claim":
		limit := 10
		d.MaybeScanArgs(t, "limit", &limit)
		return b.claim(t, word(0), limit)
	case "success", "failure":
		return b.report(t, word(0), word(1), d.Cmd == "success")
	case "apply":
		applyAll(t, b.store)
		return b.board(t)
	case "lease-ends":
		b.db.Exec(t, `update tasker.board set lease_until = clock_timestamp() - interval '1 minute' where lease_until is not null`)
		_, err := b.store.ExpireLeases(t.Context(), store.UpTo(10), 10)
		require.NoError(t, err)
		return b.board(t)
	case "retry-due":
		b.db.Exec(t, `update tasker.board set due_at = clock_timestamp() where due_at is not null`)
		_, err := b.store.PromoteDue(t.Context(), store.UpTo(10))
		require.NoError(t, err)
		return b.board(t)
	case "board":
		return b.board(t)
	case "ledger":
		return b.ledger(t)
	}
	t.Fatalf("%s: invalid command %q", d.Pos, d.Cmd)
	return ""
}

func (b *boardStory) claim(t *testing.T, worker string, limit int) string {
	t.Helper()
	claimed, _, err := b.store.Claim(t.Context(), store.ClaimRequest{Worker: uuid.NewSHA1(uuid.NameSpaceOID, []byte(worker)), Callables: b.plan.Callables,
		Limit: limit, Lease: time.Minute}, true)
	require.NoError(t, err)
	if len(claimed) == 0 {
		return "nothing to claim\n"
	}
	var text strings.Builder
	for _, c := range claimed {
		name := b.plan.Steps[c.Step].Name
		b.claims[worker+" "+name] = c
		fmt.Fprintf(&text, "%s gets %s, attempt %d\n", worker, name, c.Attempt)
	}
	return text.String()
}

func (b *boardStory) report(t *testing.T, worker, step string, success bool) string {
	t.Helper()
	r := succeed(b.claims[worker+" "+step], `"done"`)
	if !success {
		r.Success, r.Retryable, r.Result, r.Error = false, true, nil, []byte(`{"message": "no"}`)
	}
	if report(t, b.store, r)[0] {
		return "accepted\n"
	}
	return "refused: the claim is not the latest\n"
}

// board is what stands on it, in words.
func (b *boardStory) board(t *testing.T) string {
	t.Helper()
	rows := b.db.QueryString(t, `
		select coalesce(string_agg(format('%s%s', case slot when 0 then 'task: ' || tasker.task_state_name(task_state) || '; ' end,
		           case when step_no is null then 'no step in its row' else format('step %s %s', step_no, case state
		               when 1 then 'waits until it is due' when 2 then 'claimable' when 3 then 'in progress' when 4 then 'reported' end) end),
		       e'\n' order by slot), 'nothing is on the board')
		from tasker.board`)
	for no := range b.plan.Steps {
		rows = strings.ReplaceAll(rows, fmt.Sprintf("step %d ", no), b.plan.Steps[no].Name+" ")
	}
	return rows + "\n"
}

// ledger is the attempts in the order of claims.
func (b *boardStory) ledger(t *testing.T) string {
	t.Helper()
	rows := b.db.QueryString(t, `
		select coalesce(string_agg(format('step %s attempt %s: %s%s', step_no, attempt,
		           (array['success', 'failed', 'failed for good', 'lease lost', 'cancelled'])[outcome],
		           case when task_state is not null then '; the task ended: ' || tasker.task_state_name(task_state) end), e'\n' order by token), 'nothing')
		from tasker.step_attempts`)
	for no := range b.plan.Steps {
		rows = strings.ReplaceAll(rows, fmt.Sprintf("step %d ", no), b.plan.Steps[no].Name+" ")
	}
	return rows + "\n"
}
