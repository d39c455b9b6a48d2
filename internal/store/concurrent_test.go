package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// A crowd runs everything at once against one database. Its members may find work taken
// by others; an error of the database is always a failure.
type crowd struct {
	t     *testing.T
	plan  *store.Plan
	tasks int64

	finished atomic.Int64
	winners  sync.Map // identity number → the task that won
	tokens   sync.Map // token → true
}

const (
	crowdTasks    = 2000
	crowdCreators = 4
	crowdBatch    = 100
)

// TestCrowdRunsEveryStepOnce: 4 creators offer the same 2,000 tasks while 8
// workers claim, report, send heartbeats and apply.
func TestCrowdRunsEveryStepOnce(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	c := &crowd{t: t, plan: plan(t, s, diamondYAML), tasks: crowdTasks}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	errs := make(chan error, crowdCreators+8)
	var group sync.WaitGroup
	for i := range crowdCreators {
		group.Go(func() { errs <- c.create(ctx, s, i) })
	}
	for i := range 8 {
		// Two of the workers have separate processes: they have their own marks.
		mine := s
		if i%4 == 3 {
			other, err := store.Open(t.Context(), store.Options{URL: db.DSN, MaxConns: 4})
			require.NoError(t, err)
			defer other.Close()
			mine = other
		}
		group.Go(func() { errs <- c.work(ctx, mine, i) })
	}
	group.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}

	require.EqualValues(t, crowdTasks, c.finished.Load(), "each task ends once")
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where step_no is not null`))
	require.Zero(t, db.QueryInt(t, `select count(*) from tasker.board where slot = 0`))
	require.Equal(t, crowdTasks, db.QueryInt(t, `select count(*) from tasker.step_attempts where task_state = 9`))
	require.Equal(t, 4*crowdTasks, db.QueryInt(t, `select count(*) from tasker.step_attempts`))
	require.Equal(t, 4*crowdTasks, db.QueryInt(t, `select count(distinct token) from tasker.step_attempts where outcome = 1 and attempt = 1`))
	require.Equal(t, crowdTasks, db.QueryInt(t, `select count(*) from tasker.task_identities i join tasker.tasks t using (task_uuid)`))
	noViolations(t, s)
}

// create offers all tasks in its own order; each identity has exactly one winner, and all
// the others get its name.
func (c *crowd) create(ctx context.Context, s *store.Store, seed int) error {
	order := rand.New(rand.NewPCG(uint64(seed), 1)).Perm(int(c.tasks))
	for batch := range slices.Chunk(order, crowdBatch) {
		tasks := make([]store.NewTask, len(batch))
		for i, n := range batch {
			identity := dedup.KeyIdentity("shapes", "diamond", fmt.Sprint(n))
			tasks[i] = newTask(c.plan)
			tasks[i].Identity = &identity
		}
		created, err := s.CreateTasks(ctx, tasks)
		if err != nil {
			return fmt.Errorf("creator %d: %w", seed, err)
		}
		for i, n := range batch {
			if !created[i].Duplicate && created[i].UUID != tasks[i].UUID {
				return fmt.Errorf("creator %d: %s was created as %s", seed, tasks[i].UUID, created[i].UUID)
			}
			if created[i].Duplicate && created[i].UUID == tasks[i].UUID {
				return fmt.Errorf("creator %d: %s is its own duplicate", seed, tasks[i].UUID)
			}
			if winner, known := c.winners.LoadOrStore(n, created[i].UUID); known && winner != created[i].UUID {
				return fmt.Errorf("identity %d has two winners: %s and %s", n, winner, created[i].UUID)
			}
		}
	}
	return nil
}

// work claims, reports and applies until all tasks have ended.
func (c *crowd) work(ctx context.Context, s *store.Store, n int) error {
	worker := store.Daemon{UUID: uuid.Must(uuid.NewV7()), ID: fmt.Sprint("crowd-", n)}
	idle := time.NewTicker(2 * time.Millisecond) // takes time: between two looks that found nothing
	defer idle.Stop()
	for round := 0; c.finished.Load() < c.tasks; round++ {
		claimed, err := c.claim(ctx, s, worker.UUID, round%8 == 0)
		if err != nil {
			return fmt.Errorf("worker %d claims: %w", n, err)
		}
		if err := c.report(ctx, s, worker, claimed); err != nil {
			return fmt.Errorf("worker %d: %w", n, err)
		}
		applied, err := c.apply(ctx, s, worker.UUID, round%8 == 0)
		if err != nil {
			return fmt.Errorf("worker %d applies: %w", n, err)
		}
		if len(claimed)+applied > 0 {
			continue
		}
		select {
		case <-idle.C:
		case <-ctx.Done():
			return fmt.Errorf("worker %d: %d of %d tasks have ended: %w", n, c.finished.Load(), c.tasks, ctx.Err())
		}
	}
	return nil
}

func (c *crowd) claim(ctx context.Context, s *store.Store, worker uuid.UUID, full bool) ([]store.Claimed, error) {
	claimed, _, err := s.Claim(ctx, store.ClaimRequest{Worker: worker, Callables: c.plan.Callables, Limit: 40, Lease: time.Minute}, full)
	for _, x := range claimed {
		if _, twice := c.tokens.LoadOrStore(x.Token, true); twice {
			return nil, fmt.Errorf("token %d was handed out twice", x.Token)
		}
		if x.Attempt != 1 || len(x.ParentResults) != len(c.plan.Steps[x.Step].Parents) {
			return nil, fmt.Errorf("step %d: attempt %d with the results of %d parents", x.Step, x.Attempt, len(x.ParentResults))
		}
	}
	return claimed, err
}

// report sends the results beside a heartbeat that names the claims in another order, and
// then repeats them: the second time none may be accepted.
func (c *crowd) report(ctx context.Context, s *store.Store, worker store.Daemon, claimed []store.Claimed) error {
	if len(claimed) == 0 {
		return nil
	}
	reports, keys := make([]store.Report, len(claimed)), make([]store.ClaimKey, len(claimed))
	for i, x := range claimed {
		reports[i], keys[len(keys)-1-i] = succeed(x, `{"n":1}`), key(x)
	}
	var group sync.WaitGroup
	var beat error
	group.Go(func() { _, beat = s.WorkerHeartbeat(ctx, worker, keys, time.Minute) })
	accepted, err := s.Report(ctx, reports)
	group.Wait()
	if err := errors.Join(err, beat); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if slices.Contains(accepted, false) {
		return errors.New("a valid claim was rejected")
	}
	again, err := s.Report(ctx, reports)
	if err != nil {
		return fmt.Errorf("report again: %w", err)
	}
	if slices.Contains(again, true) {
		return errors.New("a claim was accepted twice")
	}
	return nil
}

func (c *crowd) apply(ctx context.Context, s *store.Store, processor uuid.UUID, full bool) (int, error) {
	taken, err := s.TakeReported(ctx, 60, full)
	if err != nil {
		return 0, err
	}
	defer taken.Release()
	changes := make([]store.Change, 0, len(taken.Tasks))
	for i := range taken.Tasks {
		task := &taken.Tasks[i]
		progress, effects, err := workflow.Advance(task.Plan.Plan, task.State, task.Progress, rules, inputsOf(task)...)
		if err != nil {
			return 0, err
		}
		changes = append(changes, store.Change{Task: task, Progress: progress, Effects: effects})
	}
	if len(changes) == 0 {
		return 0, nil
	}
	done, err := taken.Commit(ctx, processor, changes)
	c.finished.Add(int64(done.Finished))
	return len(changes), err
}

func inputsOf(task *store.TakenTask) []workflow.Input {
	in := make([]workflow.Input, 0, len(task.Reported))
	for _, r := range task.Reported {
		if r.Outcome == workflow.OutcomeLeaseLost {
			in = append(in, workflow.LeaseLost{Step: r.Step, Attempt: r.Attempt})
			continue
		}
		in = append(in, workflow.Reported{Step: r.Step, Attempt: r.Attempt, Success: r.Outcome == workflow.OutcomeSuccess,
			Retryable: r.Retryable, RetryAfter: r.RetryAfter, Result: r.Result})
	}
	return in
}

// TestOneOfTwoReportsIsAccepted: the answer to a report was lost, and it is repeated
// while the first one still runs.
func TestOneOfTwoReportsIsAccepted(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	p := plan(t, s, diamondYAML)
	create(t, s, p, 200)
	for range 5 {
		claimed := claim(t, s, p, 40)
		require.Len(t, claimed, 40)
		reports := make([]store.Report, len(claimed))
		for i, x := range claimed {
			reports[i] = succeed(x, `1`)
		}
		answers, errs := make([][]bool, 3), make([]error, 3)
		var group sync.WaitGroup
		for i := range answers {
			group.Go(func() { answers[i], errs[i] = s.Report(t.Context(), reports) })
		}
		group.Wait()
		require.NoError(t, errors.Join(errs...))
		for i := range reports {
			times := 0
			for _, accepted := range answers {
				if accepted[i] {
					times++
				}
			}
			require.Equal(t, 1, times, "claim %d", i)
		}
	}
	applyAll(t, s)
	noViolations(t, s)
}
