package corpus_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
)

// driver takes a task from state to state: it acts as the worker and reports step by
// step.
type driver struct {
	t         *testing.T
	e         *enginetest.Engine
	template  *workflow.Template
	callables []int32
	id        uuid.UUID
}

// drive creates a task of a template, after change, that no worker runs.
func drive(t *testing.T, file, input string, change func(*workflow.Template)) *driver {
	t.Helper()
	template := load(t, file)
	if change != nil {
		change(template)
	}
	e := engine(t, func(*worker.Worker) error { return nil }, template)
	require.NoError(t, e.Worker.Stop(t.Context()))
	plan, err := e.Store.PlanNamed(t.Context(), template.Namespace, template.Name, template.Version)
	require.NoError(t, err)
	return &driver{t: t, e: e, template: template, callables: plan.Callables, id: e.SubmitVersion(template.Namespace, template.Name, template.Version, input)}
}

// report ends the execution of a claimable step and waits until it is applied. Other
// claimed steps are handed back.
func (d *driver) report(name string, fill func(r *store.Report)) {
	d.t.Helper()
	no := d.step(name).No
	var r store.Report
	require.Eventually(d.t, func() bool {
		claimed, _, err := d.e.Store.Claim(d.t.Context(), store.ClaimRequest{Worker: uuid.Must(uuid.NewV7()), Callables: d.callables, Limit: 100, Lease: time.Minute}, true)
		require.NoError(d.t, err)
		var others []store.ClaimKey
		for i := range claimed {
			if claimed[i].Step == no {
				r = store.Report{ClaimKey: claimed[i].Key(), RetryAfter: -1}
			} else {
				others = append(others, claimed[i].Key())
			}
		}
		_, err = d.e.Store.HandBack(d.t.Context(), others)
		require.NoError(d.t, err)
		return r.Token != 0
	}, 30*time.Second, 10*time.Millisecond, "%s is not to be had", name)
	fill(&r)
	accepted, err := d.e.Store.Report(d.t.Context(), []store.Report{r})
	require.NoError(d.t, err)
	require.Equal(d.t, []bool{true}, accepted)
	d.e.Bus.Publish(store.ReportSignals()...)
	require.Eventually(d.t, func() bool {
		return d.e.DB.QueryInt(d.t, `select count(*) from tasker.step_attempts where task_uuid = $1 and token = $2`, d.id, r.Token) == 1
	}, 30*time.Second, 10*time.Millisecond, "%s is not applied", name)
}

func (d *driver) completes(names ...string) {
	d.t.Helper()
	for _, name := range names {
		d.report(name, func(r *store.Report) { r.Success, r.Result = true, json.RawMessage(`1`) })
	}
}

func (d *driver) fails(name string) {
	d.t.Helper()
	d.report(name, func(r *store.Report) {
		r.Error, r.Retryable = json.RawMessage(`{"message":"no","error_type":"RetryableError","retryable":true}`), true
	})
}

// exhausts fails a step until its attempts are used.
func (d *driver) exhausts(name string) {
	d.t.Helper()
	for i := range d.template.Steps {
		if d.template.Steps[i].Name == name {
			for range d.template.Steps[i].Retry.MaxAttempts {
				d.fails(name)
			}
		}
	}
	require.Equal(d.t, workflow.StepError, d.step(name).State)
}

func (d *driver) step(name string) *store.Step {
	d.t.Helper()
	return step(d.t, d.e.Read(d.id), name)
}

// counts checks how many steps there are, are complete, and are ready.
func (d *driver) counts(total, complete, ready int) {
	d.t.Helper()
	c := d.e.Read(d.id).Counts()
	require.Equal(d.t, [3]int{total, complete, ready}, [3]int{c.Total, c.Complete, c.Ready})
}

func (d *driver) ready() (names []string) {
	task := d.e.Read(d.id)
	for i := range task.Steps {
		if task.Steps[i].Ready {
			names = append(names, task.Steps[i].Name)
		}
	}
	slices.Sort(names)
	return names
}

// act applies an operator's action to a step.
func (d *driver) act(kind orchestration.ActionKind, name string, result json.RawMessage) error {
	id := d.step(name).UUID
	return d.e.Orchestrator.Act(d.t.Context(), d.id, orchestration.Action{Kind: kind, Step: &id, Actor: "ana", Reason: "by hand", Result: result})
}
