package workertest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/internal/engine"
	"github.com/tasker-go/tasker/workflow"
)

const (
	defaultLimit = time.Minute
	lookEvery    = 20 * time.Millisecond // for verdicts and ends
	timeToStart  = time.Minute
	timeToStop   = 20 * time.Second
)

// PlayOn is Play on a PostgreSQL, by an orchestrator and a worker within the process
// (daemon.NewEmbedded): the same task of the same registration, in real time. The database
// is the test's own; its schema is created where it is missing.
//
// It fails the test if the task has neither ended nor is blocked by failures within
// Task.Limit: also one that waits for events which the test does not send. Task.Now must
// not be set. Of the outcome Attempts, Next, Events, Isolated and the outcomes of tasks
// that are steps are empty; tasks that handlers continue with are executed, while the
// engine runs.
func PlayOn(t TB, dsn string, register func(*worker.Worker) error, task Task) Outcome {
	t.Helper()
	o, err := playOn(dsn, register, &task)
	if err != nil {
		t.Fatalf("workertest: play a task on PostgreSQL: %v", err)
	}
	return *o
}

func playOn(dsn string, register func(*worker.Worker) error, task *Task) (o *Outcome, err error) {
	p, err := newPlayer(register, task)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeWithin(p.rehearsal)) }()
	plan, err := p.root()
	if err != nil {
		return nil, err
	}
	if !task.Now.IsZero() {
		return nil, errors.New("invalid Now: the clock of PostgreSQL cannot be set")
	}
	starting, cancel := context.WithTimeout(context.Background(), timeToStart)
	defer cancel()
	c, stop, err := embed(starting, dsn, register, task.Environment)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(task.Limit, defaultLimit)) // of the task alone
	defer cancel()
	return (&timed{c: c, task: task, template: plan.Template, decided: map[string]bool{}}).play(ctx)
}

// embed starts the engine.
func embed(ctx context.Context, dsn string, register func(*worker.Worker) error, environment string) (c *client.Client, stop func() error, err error) {
	loaded, err := config.Load(config.Options{Environment: environment, LookupEnv: func(name string) (string, bool) {
		if name == "DATABASE_URL" {
			return dsn, true
		}
		return "", false
	}})
	if err != nil {
		return nil, nil, err
	}
	loaded.Orchestration.Web.BindAddress, loaded.Worker.Web.BindAddress = "127.0.0.1:0", "127.0.0.1:0"
	loaded.Orchestration.GRPC.Enabled, loaded.Worker.GRPC.Enabled = false, false
	loaded.Common.Backoff.JitterEnabled = false
	o, w, err := daemon.NewEmbedded(ctx, loaded, register, zap.NewNop())
	if err != nil {
		return nil, nil, err
	}
	stopped := func(services ...interface{ Stop(context.Context) error }) (err error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeToStop)
		defer cancel()
		for _, s := range services {
			err = errors.Join(err, s.Stop(ctx))
		}
		return err
	}
	if err := o.Start(ctx); err != nil {
		return nil, nil, err
	}
	if err := w.Start(ctx); err != nil {
		return nil, nil, errors.Join(err, stopped(o))
	}
	return client.New(client.Config{BaseURL: "http://" + o.Addr().String()}), func() error { return stopped(w, o) }, nil
}

// timed is a task that is played on PostgreSQL.
type timed struct {
	c        *client.Client
	task     *Task
	template *workflow.Template
	id       string
	begin    time.Time
	sent     int             // of the events, in the order of time
	decided  map[string]bool // approvals, by token
}

func (r *timed) play(ctx context.Context) (*Outcome, error) {
	if err := r.create(ctx); err != nil {
		return nil, err
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		task, err := r.c.Task(ctx, r.id, 0)
		if err != nil {
			return nil, fmt.Errorf("the task has not ended within %v: %w", cmp.Or(r.task.Limit, defaultLimit), err)
		}
		state, _ := workflow.ParseTaskState(task.Status)
		if state.Terminal() || state == workflow.TaskBlockedByFailures {
			return r.outcome(ctx, task, state)
		}
		if err := errors.Join(r.send(ctx), r.decide(ctx, r.id)); err != nil {
			return nil, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("the task has not ended within %v: it is %s", cmp.Or(r.task.Limit, defaultLimit), task.Status)
		}
	}
}

func (r *timed) create(ctx context.Context) error {
	doc, err := encode(cmp.Or[any](r.task.Context, json.RawMessage(`{}`)))
	if err != nil {
		return fmt.Errorf("encode Context: %w", err)
	}
	request := client.TaskRequest{Namespace: r.template.Namespace, Name: r.template.Name, Version: r.template.Version, Context: doc,
		Initiator: "workertest", SourceSystem: "workertest", Reason: "workertest", Priority: r.task.Priority, IdempotencyKey: uuid.NewString()}
	if in := r.task.StartIn.Seconds(); in > 0 {
		request.DelaySeconds = &in
	}
	r.task.Events = slices.Clone(r.task.Events)
	slices.SortStableFunc(r.task.Events, func(a, b Event) int { return cmp.Compare(a.After, b.After) })
	created, err := r.c.CreateTask(ctx, request)
	if err != nil {
		return err
	}
	r.id, r.begin = created.TaskUUID, time.Now()
	return nil
}

// send sends the events that are due.
func (r *timed) send(ctx context.Context) error {
	for ; r.sent < len(r.task.Events); r.sent++ {
		e := &r.task.Events[r.sent]
		if time.Since(r.begin) < e.After {
			return nil
		}
		payload, err := encode(e.Payload)
		if err != nil {
			return fmt.Errorf("encode the payload of event %s: %w", e.Name, err)
		}
		event := client.ExternalEvent{Name: e.Name, Key: e.Key, Payload: payload, ID: uuid.NewString()}
		if e.Key == "" {
			event.TaskUUID = r.id
		} else {
			event.Namespace = r.template.Namespace
		}
		if _, err := r.c.SendEvent(ctx, event); err != nil {
			return fmt.Errorf("send the event %s: %w", e.Name, err)
		}
	}
	return nil
}

// decide gives the verdicts that are due, for a task and the tasks that its steps are.
func (r *timed) decide(ctx context.Context, task string) error {
	if len(r.task.Verdicts) == 0 {
		return nil
	}
	open, err := r.c.Approvals(ctx, client.ApprovalListOptions{TaskUUID: task})
	if err != nil {
		return err
	}
	for i := range open {
		if err := r.give(ctx, &open[i]); err != nil {
			return err
		}
	}
	steps, err := r.c.Steps(ctx, task)
	if err != nil {
		return err
	}
	for i := range steps {
		if w := steps[i].Waiting; w != nil && w.TaskUUID != nil {
			if err := r.decide(ctx, *w.TaskUUID); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *timed) give(ctx context.Context, a *client.Approval) error {
	for i := range r.task.Verdicts {
		v := &r.task.Verdicts[i]
		if v.Step != a.StepName || r.decided[a.Token] || time.Since(a.Since.Time) < v.After {
			continue
		}
		r.decided[a.Token] = true
		given := client.Verdict{Approved: v.Approved, Actor: cmp.Or(v.Actor, "workertest"), Comment: v.Comment}
		if v.Data != nil {
			doc, err := encode(v.Data)
			if err != nil {
				return fmt.Errorf("encode the data of a verdict: %w", err)
			}
			given.Data = doc
		}
		if _, err := r.c.Decide(ctx, a.Token, given); err != nil {
			return fmt.Errorf("decide step %s: %w", v.Step, err)
		}
	}
	return nil
}

func (r *timed) outcome(ctx context.Context, task *client.Task, state workflow.TaskState) (*Outcome, error) {
	o := &Outcome{State: state, Took: task.UpdatedAt.Sub(task.CreatedAt.Time)}
	steps, err := r.c.Steps(ctx, r.id)
	if err != nil {
		return nil, err
	}
	for i := range steps {
		s := &steps[i]
		out := StepOutcome{Name: s.Name, Attempts: s.Attempts}
		at := slices.IndexFunc(workflow.StepStates(), func(state workflow.StepState) bool { return state.String() == s.CurrentState })
		if at < 0 {
			return nil, fmt.Errorf("step %s has the unknown state %s", s.Name, s.CurrentState)
		}
		out.State = workflow.StepStates()[at]
		if err := out.read(s.Results); err != nil {
			return nil, fmt.Errorf("read the result of step %s: %w", s.Name, err)
		}
		o.Steps = append(o.Steps, out)
	}
	return o, nil
}

// read reads the result of a step as the API shows it.
func (s *StepOutcome) read(doc json.RawMessage) error {
	var r *client.StepResult
	if doc == nil {
		return nil
	}
	if err := json.Unmarshal(doc, &r); err != nil || r == nil {
		return err
	}
	if r.Success {
		s.Result = r.Result
	}
	if e := r.Error; e != nil {
		s.Failure = &Failure{Message: e.Message, Retryable: e.Retryable, Final: s.State == workflow.StepError}
		s.Failure.Type, s.Failure.RetryAfter = e.ErrorType, engine.NoDelay
		if code := r.Metadata.ErrorCode; code != nil {
			s.Failure.Code = *code
		}
	}
	return nil
}
