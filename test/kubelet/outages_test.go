//go:build kubelet

package kubelet_test

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/test/fleet"
)

// firstOnline is the migration that the upgrade goes across; the daemons of the commit before
// it are the former version.
const firstOnline = "internal/store/migrations/00106_failed_plans.sql"

// TestRollingUpgradeAndBack: the Job of the new version migrates, the pods are replaced by new
// ones, and by the former ones again, under load.
func TestRollingUpgradeAndBack(t *testing.T) {
	former := t.TempDir()
	require.NoError(t, fleet.BuildBefore(t.Context(), "../..", firstOnline, t.TempDir(), former))
	db := pgtest.New(t)
	upgraded := strings.ReplaceAll(manifests(t), "/health/accepting", "/health/ready")                  // the former does not have it,
	install := strings.Replace(upgraded, `args: [migrate, up, --wait, "5m"]`, "args: [migrate, up]", 1) // nor --wait
	require.NotEqual(t, upgraded, install)
	nodes(t, install, former, db.DSN)
	require.Equal(t, 105, db.QueryInt(t, `select max(version_id) from tasker.tasker_schema_version`))
	k := loaded(t, upgraded, former, db.DSN)
	require.NoError(t, rollOut(t, k))

	all, err := under(t.Context(), k, slices.Concat(always[:2], kept[:2]), func(*load) error {
		k.BinDir = binDir
		if err := k.RunJobs(t.Context()); err != nil {
			return err
		}
		if err := k.Roll(t.Context()); err != nil {
			return err
		}
		k.BinDir = former
		return k.Roll(t.Context())
	})
	require.NoError(t, err)
	require.Positive(t, db.QueryInt(t, `select count(*) from tasker.schema_changes`), "the migration was applied")
	b := settle(t, db.DSN, all)
	t.Log(b)
	require.True(t, b.whole(), "%v", b)
	require.Zero(t, b.failed, "%v", firsts(failed(all)))
	require.Zero(t, b.wasted, "executions")
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.step_attempts where attempt > 1`), "attempts used")
	require.Zero(t, k.Restarts())
	require.NoError(t, k.Stop())
}

// TestLosingANode: all pods of a node end at once. Requests fail on connections to them alone, and
// attempts are used for claims that had begun there: those whose handlers ran, and those that the
// worker had announced because they would begin within two round trips. All others are free.
func TestLosingANode(t *testing.T) {
	bin, planted, noted := slowWorker(t, manifests(t))
	db := pgtest.New(t)
	k := nodes(t, planted, bin, db.DSN)
	require.NoError(t, rollOut(t, k))
	clients := slices.Concat(always[:3], kept[:2])
	for i := range clients {
		clients[i].pause, clients[i].tasks = 50*time.Millisecond, []string{"diamond", "diamond", "long"}
	}
	var lost []string
	begun := map[int64]bool{} // of the claims when the node was lost, by token
	all, err := under(t.Context(), k, clients, func(*load) error {
		pgtest.Eventually(t, time.Minute, func() (bool, string) { return len(noted()) >= 50, "long handlers run" })
		lost = k.Lose(0)
		begun = claims(t, db.DSN)
		_ = lifecycle.Pause(t.Context(), 5*time.Second) // the load goes on without the node
		if err := k.Restore(t.Context()); err != nil {
			return err
		}
		return lifecycle.Pause(t.Context(), 2*time.Second)
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(lost), 2)
	for _, r := range failed(all) {
		assert.Contains(t, lost, r.pod, "a request to another node failed: %v", r.err)
	}
	b := settle(t, db.DSN, all)
	begins, ran := map[string]int{}, map[int64]bool{} // of long handlers, by task, and of all, by token
	for _, x := range noted() {
		if ran[x.token] = true; x.name == "long" {
			begins[x.task]++
		}
	}
	again := 0
	for task, n := range begins {
		if n > 1 {
			again++
			assert.Equal(t, n, db.QueryInt(t, `select max(attempt) from tasker.step_attempts where task_uuid = $1`, task), "attempts of %s", task)
		}
	}
	used, announced, free := 0, 0, 0
	for token, attempts := range losses(t, db.DSN) {
		had, known := begun[token]
		require.True(t, known, "a claim was lost that was made later: %d", token)
		switch {
		case ran[token]:
			used++
			assert.Equal(t, 1, attempts, "attempts used by the loss of claim %d, whose handler had begun", token)
		case had:
			announced++
			assert.Equal(t, 1, attempts, "attempts used by the loss of claim %d, which had been announced", token)
		default:
			free++
			assert.Zero(t, attempts, "attempts used by the loss of claim %d, which had not begun", token)
		}
	}
	t.Logf("%d of 5 pods were lost: %v; %d long handlers ran there, and again elsewhere; of the claims lost %d had begun, %d had been announced to begin at once, %d were free",
		len(lost), b, again, used, announced, free)
	require.True(t, b.whole(), "%v", b)
	require.Positive(t, again, "no handler ran on the node")
	require.Zero(t, k.Restarts())
	require.NoError(t, k.Stop())
}

// claims are those on the board by token, and whether their loss uses an attempt.
func claims(t *testing.T, dsn string) map[int64]bool {
	t.Helper()
	found := map[int64]bool{}
	rows(t, dsn, `select token, ahead is not true or exists (select from tasker.begun_claims c where c.worker = b.worker and b.token <= c.token)
		from tasker.board b where state = 3`, func(scan func(...any) error) error {
		var token int64
		var begun bool
		err := scan(&token, &begun)
		found[token] = begun
		return err
	})
	return found
}

// losses are the attempts that lost claims have used, by token.
func losses(t *testing.T, dsn string) map[int64]int {
	t.Helper()
	found := map[int64]int{}
	rows(t, dsn, `select a.token, n.attempt - a.attempt from tasker.step_attempts a cross join lateral (select attempt from tasker.step_attempts
		where task_uuid = a.task_uuid and step_no = a.step_no and token > a.token order by token limit 1) n where a.outcome = 4`, func(scan func(...any) error) error {
		var token int64
		var used int
		err := scan(&token, &used)
		found[token] = used
		return err
	})
	return found
}

// away is how long the database is away.
const away = time.Minute

// TestTheDatabaseIsAway: all clients, also those with new connections, hear 503 with Retry-After
// until the database is back, and then work at the rate they had; no container is restarted.
func TestTheDatabaseIsAway(t *testing.T) {
	server := pgtest.Private(t, nil)
	db := server.New(t)
	k := nodes(t, manifests(t), binDir, db.DSN)
	require.NoError(t, rollOut(t, k))
	slow := slices.Concat(always[:2], kept[:3], calls[:1], calls[3:])
	for i := range slow {
		slow[i].pause = 100 * time.Millisecond
	}
	var before, after float64
	took := time.Duration(math.MaxInt64)
	all, err := under(t.Context(), k, slow, func(l *load) error {
		const span = 5 * time.Second
		_ = lifecycle.Pause(t.Context(), 2*span) // warm
		before = l.rate(time.Now().Add(-span), span)
		if err := server.StopImmediate(t.Context()); err != nil {
			return err
		}
		_ = lifecycle.Pause(t.Context(), away)
		if err := server.Restart(t.Context()); err != nil {
			return err
		}
		back := time.Now()
		_ = lifecycle.Pause(t.Context(), 2*span+3*time.Second)
		for from := back; from.Before(back.Add(2 * span)); from = from.Add(time.Second / 4) { // the first 3 seconds at the former rate
			if after = l.rate(from, 3*time.Second); after >= 0.9*before {
				took = from.Sub(back)
				break
			}
		}
		return nil
	})
	require.NoError(t, err)
	statuses := map[string]int{}
	for _, r := range failed(all) {
		statuses[fmt.Sprintf("%d, Retry-After: %t", r.status, r.retry != "")]++
		if r.status != http.StatusServiceUnavailable || r.retry == "" {
			assert.Fail(t, "another answer than 503 with Retry-After", "%s: %d, Retry-After %q: %v", r.pod, r.status, r.retry, r.err)
		}
	}
	b := settle(t, db.DSN, all)
	t.Logf("%v; %v; %.0f tasks/s before, %.0f after, from %v on; %d restarts", b, statuses, before, after, took, k.Restarts())
	require.True(t, b.whole(), "%v", b)
	require.LessOrEqual(t, took, 10*time.Second)
	require.Zero(t, k.Restarts())
	require.NoError(t, k.Stop())
}

// TestDrainingWorkersHandOver: in a rolling restart handlers that yield go on elsewhere, from
// their checkpoint and in the same attempt; those that do not end by themselves.
func TestDrainingWorkersHandOver(t *testing.T) {
	bin, planted, noted := slowWorker(t, manifests(t))
	db := pgtest.New(t)
	k := nodes(t, planted, bin, db.DSN)
	require.NoError(t, rollOut(t, k))
	clients := several(2, client{name: "mixed", pause: 200 * time.Millisecond, tasks: []string{"sliced", "long"}})
	all, err := under(t.Context(), k, clients, func(*load) error {
		pgtest.Eventually(t, time.Minute, func() (bool, string) { return len(noted()) >= 50, "handlers run" })
		return k.Roll(t.Context())
	})
	require.NoError(t, err)
	b := settle(t, db.DSN, all)
	done, pods := map[string]int{}, map[string]map[string]bool{}
	for _, x := range noted() {
		done[fmt.Sprint(x.task, " ", x.slice)]++
		assert.Equal(t, 1, x.attempt, "attempt of %s %s", x.name, x.task)
		if pods[x.task] == nil {
			pods[x.task] = map[string]bool{}
		}
		pods[x.task][x.pod] = true
	}
	twice, moved := 0, 0
	for _, n := range done {
		if n > 1 {
			twice++
		}
	}
	for _, on := range pods {
		if len(on) > 1 {
			moved++
		}
	}
	t.Logf("%v; %d slices, %d of them twice; %d tasks went on in another pod", b, len(done), twice, moved)
	require.True(t, b.whole(), "%v", b)
	require.Zero(t, b.failed, "%v", firsts(failed(all)))
	require.Zero(t, b.wasted)
	require.Zero(t, twice)
	require.Positive(t, moved)
	require.Zero(t, k.Restarts())
	require.NoError(t, k.Stop())
}
