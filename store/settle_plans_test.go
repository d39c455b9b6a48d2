package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/store/internal/stmt"
	"github.com/tasker-go/tasker/workflow"
)

// settleStatements are the statements of Settle for the steps in progress in the rows of
// their tasks, and that of CreateAndClaim.
func settleStatements(t *testing.T, plan *Plan, held []ClaimKey) (list []hotStatement) {
	req := ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Callables: []int32{1}, Limit: len(held), Lease: time.Minute}
	progress := workflow.NewProgress(plan.Plan)
	progress.Steps[0].Status, progress.Steps[1].Status = workflow.StatusComplete, workflow.StatusOnBoard
	var both []Settlement
	for _, k := range held {
		if k.Slot != 0 {
			continue
		}
		for _, e := range []workflow.Effects{
			{End: []workflow.EndStep{{Step: k.Step, Outcome: workflow.OutcomeSuccess}}, Put: []workflow.PutStep{{Step: 1}}, State: workflow.TaskStepsInProcess},
			{End: []workflow.EndStep{{Step: k.Step, Outcome: workflow.OutcomeSuccess}}, State: workflow.TaskComplete, Finished: true},
		} {
			both = append(both, Settlement{Claim: &Claimed{TaskUUID: k.TaskUUID, Step: k.Step, Token: k.Token, Queue: 1,
				ParentResults: map[int]json.RawMessage{0: []byte(`1`)}, Task: &Standing{State: workflow.TaskStepsInProcess, Progress: progress}},
				Result: []byte(`1`),
				Plan:   plan, Progress: progress, Effects: &e})
		}
	}
	if len(both) == 0 {
		return nil
	}
	names := [2]string{"settleMoves", "settleEnds"}
	for kind, name := range names {
		one := slices.Collect(func(yield func(Settlement) bool) {
			for i := kind; i < len(both); i += 2 {
				yield(both[i])
			}
		})
		w := newSettling(req, one)
		before := bytes.Repeat([]byte{0}, 14) // as the fixture has it
		for i := range w.ended {
			w.ended[i].Before, w.ended[i].FromState = before, workflow.TaskStepsInProcess
		}
		for i := range w.moved {
			w.moved[i].Before, w.moved[i].FromState = before, workflow.TaskStepsInProcess
		}
		b := &pgx.Batch{}
		w.queue(b, make([]Settled, len(one)))
		require.Len(t, b.QueuedQueries, 1)
		list = append(list, hotStatement{name, stmt.Call{SQL: b.QueuedQueries[0].SQL, Args: b.QueuedQueries[0].Arguments}, len(one), len(one)})
	}
	tasks := make(uuids, 0, len(held))
	for _, k := range held {
		tasks = append(tasks, k.TaskUUID)
	}
	return append(list,
		hotStatement{"lockSettled", lockSettled.With(args{"tasks": tasks}), len(held), len(held)},
		hotStatement{"claimCreated", claimCreated.With(args{"tasks": tasks, "worker": req.Worker, "lease_ms": int64(60_000)}), len(held), 0})
}
