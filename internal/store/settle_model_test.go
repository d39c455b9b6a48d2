package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

// takeClaims is Claim with the states of the tasks.
func (m *model) takeClaims(t *rapid.T, at int, req store.ClaimRequest, full bool) []store.Claimed {
	claimed, _, err := m.stores[at].Claim(m.ctx, req, full)
	require.NoError(t, err)
	for _, c := range claimed {
		require.Equal(t, c.Slot == 0, c.Task != nil)
		m.standing[c.Token] = c
	}
	return claimed
}

// settle settles claims, valid and stale ones, and takes the next steps.
func (m *model) settle(t *rapid.T) {
	req := store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Limit: rapid.IntRange(0, 3).Draw(t, "limit"), Lease: time.Hour}
	for _, c := range m.callables() {
		if rapid.IntRange(0, 3).Draw(t, "offered") > 0 {
			req.Callables = append(req.Callables, c)
		}
	}
	if rapid.Bool().Draw(t, "gpu") {
		req.Tags = []string{"gpu"}
	}
	var list []store.Settlement
	for _, k := range m.someClaims(t) {
		if c, ok := m.standing[k.Token]; ok && c.Task != nil {
			p := m.tasks[k.TaskUUID].plan
			c.Step = k.Step // invented ones have another
			progress, effects, err := workflow.Advance(p.Plan, c.Task.State, c.Task.Progress, modelRules,
				workflow.Reported{Step: k.Step, Attempt: c.Attempt, Success: true})
			if err != nil {
				continue
			}
			list = append(list, store.Settlement{Claim: &c, Result: json.RawMessage(fmt.Sprintf(`{"step":%d}`, k.Step)),
				Plan: p, Progress: progress, Effects: effects})
		}
	}
	answers, done, err := m.stores[m.anyStore(t)].Settle(m.ctx, req, list)
	require.NoError(t, err)
	require.Len(t, answers, len(list))
	finished := 0
	for i := range list {
		m.settled(t, &req, &list[i], answers[i])
		if answers[i].Accepted && list[i].Effects.Finished {
			finished++
		}
	}
	require.Equal(t, finished, done.Finished)
}

// settled changes the model as one settlement must have done.
func (m *model) settled(t *rapid.T, req *store.ClaimRequest, s *store.Settlement, a store.Settled) {
	k, e := s.Claim.Key(), s.Effects
	task, step := m.tasks[k.TaskUUID], m.held(k)
	simple := e.Finished && e.State == workflow.TaskComplete || !e.Finished && len(e.Put) == 1
	for _, c := range e.Changes {
		if c.To != workflow.TaskComplete && c.From != workflow.TaskPending {
			simple = false
		}
	}
	require.Equal(t, step != nil && simple && step.saved == 0, a.Accepted, "a step with checkpoints is reported")
	if !a.Accepted {
		require.Equal(t, store.Settled{}, a)
		return
	}
	require.Equal(t, task.progress, s.Claim.Task.Progress, "it has not changed under the claim")
	m.accepted[k.Token] = true
	m.ledger[ledgerLine(k.TaskUUID, k.Step, step.attempt, k.Token, workflow.OutcomeSuccess, 0)] = true
	delete(task.steps, k.Step)
	task.state, task.progress = e.State, s.Progress
	if e.Finished {
		return
	}
	no := e.Put[0].Step
	next := &modelStep{state: 2, lane: laneBy(task.priority, true)}
	task.steps[no] = next
	if a.Next == nil {
		return
	}
	require.GreaterOrEqual(t, req.Limit, 1)
	require.Contains(t, req.Callables, task.plan.Callables[no])
	require.True(t, len(task.plan.Steps[no].Tags) == 0 || slices.Contains(req.Tags, "gpu"))
	require.Equal(t, no, a.Next.Step)
	require.Len(t, a.Next.ParentResults, len(task.plan.Steps[no].Parents))
	for parent, result := range a.Next.ParentResults {
		require.JSONEq(t, fmt.Sprintf(`{"step":%d}`, parent), string(result))
	}
	next.state, next.attempt, next.token = 3, 1, a.Next.Token
	m.claims = append(m.claims, a.Next.Key())
	m.standing[a.Next.Token] = *a.Next
}
