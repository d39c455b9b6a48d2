package store_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/limitrule"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/store/internal/board"
	"github.com/tasker-go/tasker/workflow"
)

var lossRuns = flag.Int("loss.runs", 1, "runs of each case with many steps that end their processes; four times as many with few")

const processYAML = `
name: process
namespace_name: tests
version: 1.0.0
steps:
  - name: a
    handler: {callable: h}
    retry: {retryable: true, max_attempts: 3}
`

const maxLosses = 10

// process is a worker that runs the steps it claims until one of them ends it. It claims by the
// rule of workers: at most one suspect, and beside it no other step that was lost.
type process struct {
	t       *testing.T
	s       *store.Store
	p       *store.Plan
	id      uuid.UUID
	permits int
	held    []store.Claimed
}

func (w *process) lost(from int) (n int) {
	for _, c := range w.held {
		if c.Losses >= from {
			n++
		}
	}
	return n
}

// begin registers the process.
func (w *process) begin() {
	w.id, w.held = uuid.Must(uuid.NewV7()), nil
	_, err := w.s.WorkerHeartbeat(w.t.Context(), store.Daemon{UUID: w.id, ID: "w"}, nil, time.Minute)
	require.NoError(w.t, err)
}

// fill claims for the free permits.
func (w *process) fill() {
	req := store.ClaimRequest{Worker: w.id, Callables: w.p.Callables, Limit: w.permits - len(w.held), Lease: time.Minute,
		BesideSuspect: w.lost(store.SuspectedFrom) > 0}
	if req.Limit == 0 {
		return
	}
	claimed, rest, err := w.s.Claim(w.t.Context(), req, true)
	require.NoError(w.t, err)
	w.held = append(w.held, claimed...)
	if rest&store.RestSuspects == 0 || w.lost(1) > 0 || len(w.held) == w.permits {
		return
	}
	suspect, _, err := w.s.ClaimSuspect(w.t.Context(), req)
	require.NoError(w.t, err)
	require.Len(w.t, suspect, 1)
	require.GreaterOrEqual(w.t, suspect[0].Losses, store.SuspectedFrom)
	w.held = append(w.held, suspect...)
}

// lose has all claims of the process lost, and returns what became of them.
func (w *process) lose(db *pgtest.DB, most int) board.Expired {
	db.Exec(w.t, `update tasker.board set lease_until = greatest(claimed_at, clock_timestamp() - interval '1 ms') where state = 3 and worker = $1`, w.id)
	w.s.LookFromBeginning()
	expired, err := w.s.ExpireLeases(w.t.Context(), store.UpTo(1000), most)
	require.NoError(w.t, err)
	require.Equal(w.t, len(w.held), expired.Claims())
	w.held = nil
	return expired
}

// TestAStepThatEndsItsProcessTakesNoOthersAlong: whatever the order in which steps run, those that end their
// processes are given up after max_crashes ends that they are blamed for, and none of the others is.
func TestAStepThatEndsItsProcessTakesNoOthersAlong(t *testing.T) {
	t.Parallel()
	runs := func(tasks int) int {
		if tasks > 100 {
			return *lossRuns
		}
		return 4 * *lossRuns
	}
	for _, tasks := range []int{40, 400} {
		for killers := 1; killers <= 3; killers++ {
			for run := range runs(tasks) {
				t.Run(fmt.Sprintf("%d of %d, run %d", killers, tasks, run), func(t *testing.T) {
					t.Parallel()
					killInnocents(t, tasks, killers, rand.New(rand.NewPCG(uint64(tasks+killers), uint64(run))))
				})
			}
		}
	}
}

func killInnocents(t *testing.T, tasks, killers int, random *rand.Rand) {
	s, db := open(t)
	p := plan(t, s, processYAML)
	ids := create(t, s, p, tasks)
	kills := map[uuid.UUID]int{}
	for len(kills) < killers {
		kills[ids[random.IntN(tasks)]] = 0
	}
	w := &process{t: t, s: s, p: p, permits: 8}
	w.begin()
	blamed := map[uuid.UUID]int{}
	for w.fill(); len(w.held) > 0; w.fill() {
		// A few of them end now; the end of the process is among them, or not.
		random.Shuffle(len(w.held), func(i, j int) { w.held[i], w.held[j] = w.held[j], w.held[i] })
		now := 1 + random.IntN(len(w.held))
		var reports []store.Report
		killed := false
		for _, c := range w.held[:now] {
			if _, kills1 := kills[c.TaskUUID]; kills1 {
				kills[c.TaskUUID]++
				killed = true
				break
			}
			reports = append(reports, succeed(c, `1`))
		}
		report(t, s, reports...)
		if w.held = slices.Delete(w.held, 0, len(reports)); killed {
			for _, step := range w.lose(db, maxLosses).Blamed {
				blamed[step.TaskUUID]++
			}
			w.begin()
		}
		applyAll(t, s)
	}
	ended := map[string]int{}
	for _, id := range ids {
		task, err := s.Task(t.Context(), id)
		require.NoError(t, err)
		ended[task.State.String()]++
		if _, killer := kills[id]; !killer {
			require.Equal(t, workflow.TaskComplete, task.State, "an innocent")
			require.Less(t, blamed[id], rules.MaxCrashes)
			continue
		}
		require.Equal(t, workflow.TaskError, task.State)
		require.Equal(t, rules.MaxCrashes, blamed[id])
		require.LessOrEqual(t, kills[id], rules.MaxCrashes+store.SuspectedFrom, "and those before it was suspected")
	}
	require.Equal(t, map[string]int{"complete": tasks - killers, "error": killers}, ended)
	noViolations(t, s)
}

// oneSuspect is a task whose step a process has claimed as a suspect.
func oneSuspect(t *testing.T, yaml string) (*store.Store, *pgtest.DB, *process, uuid.UUID) {
	t.Helper()
	s, db := open(t)
	w := &process{t: t, s: s, p: plan(t, s, yaml), permits: 1}
	id := create(t, s, w.p, 1)[0]
	for range store.SuspectedFrom {
		w.begin()
		w.fill()
		require.Len(t, w.held, 1)
		require.Equal(t, 1, w.held[0].Attempt, "a loss uses no attempt")
		require.Equal(t, 1, w.lose(db, 3).Spared)
	}
	w.begin()
	w.fill()
	require.Len(t, w.held, 1)
	require.Equal(t, store.SuspectedFrom, w.held[0].Losses)
	return s, db, w, id
}

func whatWasSaid(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	return db.QueryString(t, `select string_agg(coalesce(reason, '-') || ': ' || split_part(error ->> 'message', '; ', 2), E'\n' order by token) from tasker.step_attempts`)
}

// TestAStepIsSpared until it is suspected; then it is blamed, which uses an attempt.
func TestAStepIsSpared(t *testing.T) {
	t.Parallel()
	s, db, w, _ := oneSuspect(t, processYAML)
	lost := w.lose(db, 3)
	require.Equal(t, []int{1, 0, 1}, []int{lost.Lost, lost.Spared, len(lost.Blamed)})
	applyAll(t, s)
	require.Equal(t, `not_blamed: no step is blamed, so the step runs again without using an attempt
not_blamed: no step is blamed, so the step runs again without using an attempt
-: the step is blamed for it, as the only suspected one there`, whatWasSaid(t, db))
	w.begin()
	w.fill()
	require.Len(t, w.held, 1)
	require.Equal(t, []int{2, store.SuspectedFrom}, []int{w.held[0].Attempt, w.held[0].Losses})
	require.Equal(t, []bool{true}, report(t, s, store.Report{ClaimKey: key(w.held[0]), Error: []byte(`{}`), Retryable: true, RetryAfter: 0}))
	applyAll(t, s)
	w.held = nil
	w.fill()
	require.Len(t, w.held, 1, "it ended, so it is no suspect")
	require.Equal(t, []int{3, 0}, []int{w.held[0].Attempt, w.held[0].Losses})
	require.Equal(t, []bool{true}, report(t, s, succeed(w.held[0], `1`)))
	applyAll(t, s)
	noViolations(t, s)
}

// TestAStepThatMayNotRunTwiceEndsWithItsProcess, whoever is to blame.
func TestAStepThatMayNotRunTwiceEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	w := &process{t: t, s: s, p: plan(t, s, onceYAML), permits: 1}
	id := create(t, s, w.p, 1)[0]
	w.begin()
	w.fill()
	require.Equal(t, 1, w.lose(db, 3).Lost)
	applyAll(t, s)
	task, err := s.Task(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskError, task.State)
	require.Equal(t, "worker_lost: the step may not be executed twice", whatWasSaid(t, db))
	noViolations(t, s)
}

// TestASuspectThatOutlivesItsLossesIsNone: it was not blamed, and is bounded by max_losses.
func TestASuspectThatOutlivesItsLossesIsNone(t *testing.T) {
	t.Parallel()
	s, db, w, id := oneSuspect(t, processYAML)
	db.Exec(t, `update tasker.board set claimed_at = claimed_at - interval '1 hour' where state = 3`)
	lost := w.lose(db, 3) // the third
	require.Equal(t, []int{1, 0, 0}, []int{lost.Lost, lost.Spared, len(lost.Blamed)})
	applyAll(t, s)
	require.Contains(t, whatWasSaid(t, db), "worker_lost: the step was lost 3 times without being blamed (max_losses)")
	task, err := s.Task(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, workflow.TaskError, task.State)
	noViolations(t, s)
}

// TestAWorkerThatStopsBlamesNobody: handlers that did not end in time are no crash.
func TestAWorkerThatStopsBlamesNobody(t *testing.T) {
	t.Parallel()
	_, db, w, _ := oneSuspect(t, processYAML)
	db.Exec(t, `update tasker.workers set mode = 'Draining'`)
	require.Empty(t, w.lose(db, 3).Blamed)
}

// TestALostProcessOfALivingWorker: its worker says whether the step is to blame.
func TestALostProcessOfALivingWorker(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	w := &process{t: t, s: s, p: plan(t, s, processYAML), permits: 1}
	create(t, s, w.p, 1)
	w.begin()
	for _, blamed := range []bool{false, true} {
		w.fill()
		require.Len(t, w.held, 1)
		signals, err := s.LoseClaim(t.Context(), key(w.held[0]), blamed, 10)
		require.NoError(t, err)
		require.Len(t, signals, 1)
		again, err := s.LoseClaim(t.Context(), key(w.held[0]), blamed, 10)
		require.NoError(t, err)
		require.Empty(t, again, "the claim is over")
		applyAll(t, s)
		w.held = nil
	}
	w.fill()
	require.Equal(t, []int{2, 1}, []int{w.held[0].Attempt, w.held[0].Losses})
	require.Equal(t, 2, db.QueryInt(t, `select count(*) from tasker.step_attempts where error ->> 'error_type' = 'ExecutorLost'`))
}

// TestASuspectOfALimitedCallable is claimed by itself, like every other.
func TestASuspectOfALimitedCallable(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	p := plan(t, s, limitedYAML)
	limited(t, s, p, "a", "b")
	setLimit(t, s, p, limitrule.Rule{KeyPath: tenant, MaxRunning: new(2)})
	w := &process{t: t, s: s, p: p}
	for range store.SuspectedFrom {
		w.begin()
		claimed, _, _, err := s.ClaimLimited(t.Context(), store.ClaimRequest{Worker: w.id, Callables: p.Callables, Limit: 2, Lease: time.Minute}, true)
		require.NoError(t, err)
		require.Len(t, claimed, 2)
		w.held = claimed
		require.Equal(t, 2, w.lose(db, 3).Spared)
	}
	w.begin()
	req := store.ClaimRequest{Worker: w.id, Callables: p.Callables, Limit: 2, Lease: time.Minute}
	claimed, rest, _, err := s.ClaimLimited(t.Context(), req, true)
	require.NoError(t, err)
	require.Empty(t, claimed)
	require.NotZero(t, rest&store.RestSuspects)
	req.Limit, req.Suspects = 1, true
	claimed, _, _, err = s.ClaimLimited(t.Context(), req, true)
	require.NoError(t, err)
	require.Len(t, claimed, 1)
}
