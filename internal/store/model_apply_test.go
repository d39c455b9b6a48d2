package store_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

func (m *model) apply(t *rapid.T) {
	at, limit, full := m.anyStore(t), rapid.IntRange(1, 5).Draw(t, "limit"), rapid.Bool().Draw(t, "full")
	taken, err := m.stores[at].TakeReported(m.ctx, limit, full)
	require.NoError(t, err)
	defer taken.Release()
	require.Equal(t, m.reported(limit), uuids(taken))
	require.Zero(t, taken.Skipped)
	if rapid.IntRange(0, 4).Draw(t, "given back") > 0 {
		m.commit(t, taken)
	}
}

// applyTwo lets two orchestrators take at the same time.
func (m *model) applyTwo(t *rapid.T) {
	limit := rapid.IntRange(1, 5).Draw(t, "limit")
	a, err := m.stores[0].TakeReported(m.ctx, rapid.IntRange(1, 5).Draw(t, "first limit"), true)
	require.NoError(t, err)
	defer a.Release()
	b, err := m.stores[1].TakeReported(m.ctx, limit, rapid.Bool().Draw(t, "full"))
	require.NoError(t, err)
	defer b.Release()
	var want []uuid.UUID
	skipped := m.passedOver(limit, uuids(a))
	for _, id := range m.reported(limit, uuids(a)...) {
		if slices.Contains(uuids(a), id) {
			skipped++
			continue
		}
		want = append(want, id)
	}
	require.Equal(t, want, uuids(b), "the other does not get the same")
	require.Equal(t, skipped, b.Skipped)
	both := []*store.Taken{a, b}
	if rapid.Bool().Draw(t, "second first") {
		slices.Reverse(both)
	}
	for _, taken := range both {
		m.commit(t, taken)
	}
}

// passedOver is the number of lone steps that a look skips because their tasks are held,
// as far as its limit lets it see them.
func (m *model) passedOver(limit int, held []uuid.UUID) int {
	free, all := 0, 0
	for id, task := range m.tasks {
		for _, s := range task.steps {
			if s.state == 4 && s.slot == 0 {
				if all++; !slices.Contains(held, id) {
					free++
				}
			}
		}
	}
	return min(limit, all) - min(limit, free)
}

func uuids(taken *store.Taken) (ids []uuid.UUID) {
	for i := range taken.Tasks {
		ids = append(ids, taken.Tasks[i].UUID)
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return ids
}

// reported are the tasks of the oldest reported steps of either kind, by key. Held lone
// ones are skipped.
func (m *model) reported(limit int, held ...uuid.UUID) (ids []uuid.UUID) {
	type found struct {
		id  uuid.UUID
		seq int64
	}
	var lone, apart []found
	for id, task := range m.tasks {
		for _, s := range task.steps {
			switch {
			case s.state != 4:
			case s.slot == 0 && slices.Contains(held, id):
			case s.slot == 0:
				lone = append(lone, found{id, s.seq})
			default:
				apart = append(apart, found{id, s.seq})
			}
		}
	}
	for _, list := range [][]found{lone, apart} {
		slices.SortFunc(list, func(a, b found) int { return cmp.Compare(a.seq, b.seq) })
		for _, f := range list[:min(limit, len(list))] {
			ids = append(ids, f.id)
		}
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// commit commits taken tasks, in the store and in the model.
func (m *model) commit(t *rapid.T, taken *store.Taken) {
	if len(taken.Tasks) == 0 {
		return
	}
	changes := make([]store.Change, len(taken.Tasks))
	finished := 0
	for i := range taken.Tasks {
		got := &taken.Tasks[i]
		task := m.tasks[got.UUID]
		require.Equal(t, task.state, got.State)
		require.Equal(t, task.progress, got.Progress)
		require.Equal(t, task.priority, got.Priority)
		require.Equal(t, task.plan.ID, got.Plan.ID)
		var want []store.TakenStep
		for no := range task.plan.Steps {
			if s := task.steps[no]; s != nil && s.state == 4 {
				want = append(want, store.TakenStep{Step: no, Attempt: s.attempt, Outcome: s.outcome, Retryable: s.retryable, RetryAfter: s.retryAfter})
			}
		}
		require.Equal(t, want, got.Reported)
		changes[i] = m.decide(t, got, inputsOf(got)...)
		if changes[i].Effects.Finished {
			finished++
		}
	}
	done, err := taken.Commit(m.ctx, uuid.Nil, changes)
	require.NoError(t, err)
	require.Equal(t, finished, done.Finished)
}

// decide runs the rules and changes the model as the store must.
func (m *model) decide(t *rapid.T, got *store.TakenTask, in ...workflow.Input) store.Change {
	progress, effects, err := workflow.Advance(got.Plan.Plan, got.State, got.Progress, modelRules, in...)
	require.NoError(t, err)
	task, lane := m.tasks[got.UUID], laneBy(got.Priority, true)
	record := func(no int, outcome workflow.AttemptOutcome) {
		// A step that was handed back has no token; its checkpoint is not lost.
		if s := task.steps[no]; s.token != 0 || s.saved != 0 {
			m.ledger[ledgerLine(got.UUID, no, s.attempt, s.token, outcome, s.saved)] = true
		}
	}
	for _, e := range effects.End {
		record(e.Step, e.Outcome)
		delete(task.steps, e.Step)
	}
	for _, no := range effects.Remove {
		record(no, workflow.OutcomeCancelled)
		delete(task.steps, no)
	}
	for _, r := range effects.Retry {
		record(r.Step, r.Outcome)
		task.steps[r.Step] = &modelStep{state: placed(r.DueIn), lane: lane, attempt: task.steps[r.Step].attempt,
			saved: task.steps[r.Step].saved}
	}
	for _, p := range effects.Put {
		task.steps[p.Step] = &modelStep{state: placed(p.DueIn), lane: lane}
	}
	task.state, task.progress = effects.State, progress
	return store.Change{Task: got, Progress: progress, Effects: effects, Actor: "model"}
}

// ledgerLine is an attempt on record. A step called off while waiting has an unknown
// token; 0 stands for it.
func ledgerLine(task uuid.UUID, step, attempt int, token int64, outcome workflow.AttemptOutcome, saved int) string {
	return fmt.Sprintf("%s step %d attempt %d token %d %s, saved %d", task, step, attempt, token, outcome, saved)
}

func (m *model) cancel(t *rapid.T) {
	if len(m.order) == 0 {
		t.Skip("no tasks")
	}
	m.cancelTask(t, rapid.SampledFrom(m.order).Draw(t, "task"))
}

func (m *model) cancelTask(t *rapid.T, id uuid.UUID) {
	taken, err := m.stores[m.anyStore(t)].TakeTask(m.ctx, id)
	defer taken.Release()
	if m.tasks[id].state.Terminal() {
		require.ErrorIs(t, err, store.ErrTaskEnded)
		return
	}
	require.NoError(t, err)
	_, err = taken.Commit(m.ctx, uuid.Nil, []store.Change{m.decide(t, &taken.Tasks[0], workflow.Operation{Action: workflow.ActionCancel, Reason: "model"})})
	require.NoError(t, err)
}
