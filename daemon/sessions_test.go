package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/remote"
)

// A session whose process is alive must not be lost on a busy machine: shortGrace is for tests
// of lost ones.
const shortGrace, longGrace = 3 * time.Second, time.Minute

// remotePair are both daemons, with a grace for sessions.
func remotePair(t *testing.T, grace time.Duration) *pair {
	t.Helper()
	return newPair(t, "", func(l *config.Loaded) { l.Worker.Sessions.ReclaimGrace = grace })
}

// shortSessions are sessions that are lost soon.
func shortSessions(l *config.Loaded) {
	l.Worker.Sessions.ReclaimGrace, l.Worker.Sessions.MaxWait = 500*time.Millisecond, 500*time.Millisecond
}

// workflow registers a template with one step per callable, each after the other, and
// creates a task of it.
func (p *pair) workflow(name string, callables ...string) string {
	p.t.Helper()
	p.template(name, callables...)
	return p.create(name, 1).GetTaskUuid()
}

// template registers a template with one step per callable, each after the other.
func (p *pair) template(name string, callables ...string) {
	p.t.Helper()
	type step map[string]any
	steps, before := []step{}, []string{}
	for _, callable := range callables {
		steps = append(steps, step{"name": callable + "_step", "dependencies": before, "handler": step{"callable": callable, "initialization": step{"of": callable}},
			"retry": step{"retryable": true, "max_attempts": 3, "backoff": "fixed", "backoff_base_ms": 100}})
		before = []string{callable + "_step"}
	}
	body, err := json.Marshal(step{"name": name, "namespace_name": "none", "version": "1.0.0", "steps": steps})
	require.NoError(p.t, err)
	_, err = client.New(client.Config{BaseURL: p.rest}).RegisterTemplate(p.ctx, client.TemplateSource{Source: string(body), Reason: "test", Actor: "test"})
	require.NoError(p.t, err)
}

// executor is a process in another language.
type executor struct {
	*testing.T
	base  string // of its session
	after int64
	all   string // the worker's sessions
}

// session opens a session for callables.
func (p *pair) session(t *testing.T, permits int, callables ...string) *executor {
	t.Helper()
	return p.sessionAt(t, "http://"+p.worker.Addr().String(), permits, callables...)
}

// sessionAt opens a session with a daemon.
func (p *pair) sessionAt(t *testing.T, daemon string, permits int, callables ...string) *executor {
	t.Helper()
	o := remote.Open{Protocol: remote.Protocol, Name: t.Name(), Client: "test/1", Permits: permits}
	for _, c := range callables {
		o.Callables = append(o.Callables, remote.Callable{Callable: c})
	}
	s := &executor{T: t, all: daemon + "/v1/sessions"}
	var opened remote.Opened
	s.call(http.MethodPost, s.all, o, http.StatusCreated, &opened)
	require.Equal(t, remote.Protocol, opened.Protocol)
	s.base = s.all + "/" + opened.SessionID.String()
	return s
}

// call sends a request and decodes the answer, if it has the status.
func (s *executor) call(method, url string, body any, status int, into any) string {
	s.Helper()
	text := ""
	if body != nil {
		doc, err := json.Marshal(body)
		require.NoError(s, err)
		text = string(doc)
	}
	r := request(s.T, method, url, text)
	require.Equal(s, status, r.status, r.body)
	if into != nil {
		require.NoError(s, json.Unmarshal([]byte(r.body), into))
	}
	return r.body
}

func (s *executor) poll(wait string) (p remote.Polled) {
	s.Helper()
	s.call(http.MethodPost, s.base+"/poll?wait="+wait+"&after="+number(s.after), nil, http.StatusOK, &p)
	s.after = p.Answer
	return p
}

func number(n int64) string {
	doc, _ := json.Marshal(n) //nolint:errchkjson // a number
	return string(doc)
}

// step polls until there is a step.
func (s *executor) step() (step remote.Step) {
	s.Helper()
	pgtest.Eventually(s.T, time.Minute, func() (bool, string) {
		p := s.poll("5s")
		if len(p.Steps) > 0 {
			require.Len(s, p.Steps, 1)
			step = p.Steps[0]
		}
		return step.Fence != "", "no step"
	})
	return step
}

func (s *executor) report(r remote.Report) (rejected []remote.Rejection) {
	s.Helper()
	var answer remote.Reported
	s.call(http.MethodPost, s.base+"/reports", remote.Reports{Reports: []remote.Report{r}}, http.StatusOK, &answer)
	return answer.Rejected
}

func (s *executor) succeed(step remote.Step, result string) {
	s.Helper()
	require.Empty(s, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Success, Result: json.RawMessage(result)}))
}

// ended waits for a task, and returns its first step.
func (p *pair) ended(t *testing.T, task, status string) client.Step {
	t.Helper()
	c := client.New(client.Config{BaseURL: p.rest})
	pgtest.Eventually(t, time.Minute, func() (bool, string) {
		found, err := c.Task(p.ctx, task, 0)
		require.NoError(t, err)
		return found.Status == status, found.Status
	})
	steps, err := c.Steps(p.ctx, task)
	require.NoError(t, err)
	step, err := c.Step(p.ctx, task, steps[0].StepUUID)
	require.NoError(t, err)
	return *step
}

func TestSessions(t *testing.T) {
	t.Parallel()
	p := remotePair(t, longGrace)

	t.Run("run a workflow", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("linear", "extract", "load")
		s := p.session(t, 4, "extract", "load")
		first := s.step()
		require.Equal(t, task, first.TaskUUID.String())
		require.Equal(t, "extract_step", first.StepName)
		require.Equal(t, 1, first.Attempt)
		require.Equal(t, 3, first.MaxAttempts)
		require.JSONEq(t, `{"n":1}`, string(first.Context))
		require.Equal(t, map[string]any{"of": "extract"}, first.Initialization)
		require.Positive(t, first.TimeLeftMS)
		s.succeed(first, `{"rows":[1,2]}`)
		second := s.step()
		require.JSONEq(t, `{"rows":[1,2]}`, string(second.DependencyResults["extract_step"]))
		var result struct{ Result json.RawMessage }
		s.call(http.MethodGet, s.base+"/results?step=extract_step&fence="+second.Fence, nil, http.StatusOK, &result)
		require.JSONEq(t, `{"rows":[1,2]}`, string(result.Result))
		s.call(http.MethodGet, s.base+"/results?step=none&fence="+second.Fence, nil, http.StatusNotFound, nil)
		s.succeed(second, `null`)
		p.ended(t, task, "complete")
		require.Empty(t, s.report(remote.Report{Fence: second.Fence, Outcome: remote.Success}), "sent again")
		require.Equal(t, 409, s.report(remote.Report{Fence: second.Fence, Outcome: remote.Failure, Error: &remote.Fault{Message: "no"}})[0].Status, "it has ended otherwise")
		require.Equal(t, 409, s.report(remote.Report{Fence: "999999.1", Outcome: remote.Success})[0].Status, "of no step")
	})

	t.Run("lines overtake a report, or not", func(t *testing.T) {
		t.Parallel()
		task, c := p.workflow("logged", "logs"), client.New(client.Config{BaseURL: p.rest})
		s := p.session(t, 1, "logs")
		fence, at := s.step().Fence, time.Now().UTC()
		send := func(fence, text string, status int) {
			t.Helper()
			s.call(http.MethodPost, s.base+"/logs", remote.Lines{Lines: []remote.Line{{Fence: fence, At: at, Level: "info", Text: text}}}, status, nil)
		}
		send(fence, "before", http.StatusOK)
		s.succeed(remote.Step{Fence: fence}, `1`)
		send(fence, "after", http.StatusOK)
		send("999999.1", "of another step", http.StatusOK)
		p.ended(t, task, "complete")
		var texts []string
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			page, err := c.TaskLogs(p.ctx, task, client.LogOptions{})
			require.NoError(t, err)
			texts = nil
			for i := range page.Lines {
				texts = append(texts, page.Lines[i].Text)
			}
			return len(texts) == 2, fmt.Sprint(texts)
		})
		require.Equal(t, []string{"before", "after"}, texts)
	})

	t.Run("next tasks", func(t *testing.T) {
		t.Parallel()
		task, c := p.workflow("continues", "continues"), client.New(client.Config{BaseURL: p.rest})
		p.template("collects", "collects")
		s, one := p.session(t, 2, "continues"), uuid.NewString()
		start := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		next := remote.Next{Name: "collects", Context: json.RawMessage(`{"n":2}`), Initiator: "ana", SourceSystem: "shop", Reason: "it is time",
			CorrelationID: &one, StartAt: start.Format(time.RFC3339), Deadline: start.Add(time.Hour).Format(time.RFC3339),
			DependsOn: []string{task}, OnDependencyFailure: "continue", MaxAttempts: new(5), RetryDelays: []string{"1s", "2m"}}
		require.Empty(t, s.report(remote.Report{Fence: s.step().Fence, Outcome: remote.Success, Result: json.RawMessage(`1`), Next: &next}))
		p.ended(t, task, "complete")
		before, err := c.Task(p.ctx, task, 0)
		require.NoError(t, err)
		require.Len(t, before.ContinuedBy, 1)
		made, err := c.Task(p.ctx, before.ContinuedBy[0], 0)
		require.NoError(t, err)
		require.Equal(t, []string{"collects", "ana", "shop", "it is time", one}, []string{made.Name, made.Initiator, made.SourceSystem, made.Reason, made.CorrelationID})
		require.WithinDuration(t, start, made.StartAt.Time, 0)
		require.Equal(t, []any{[]string{task}, 5, []string{"1s", "2m0s"}}, []any{made.DependsOn, made.MaxAttempts, made.RetryDelays})

		n := 2.0
		for want, change := range map[string]func(n *remote.Next){
			"invalid start_at": func(n *remote.Next) { n.StartAt = "2099-01-02T03:04:05" }, "the deadline has passed": func(n *remote.Next) { n.Deadline = "2020-01-02T03:04:05Z" },
			"not both": func(n *remote.Next) { n.DelaySeconds = 1 }, "retry_delays[0]": func(n *remote.Next) { n.RetryDelays[0] = "soon" },
			"depends_on": func(n *remote.Next) { n.DependsOn = []string{"7"} }, "correlation_id": func(n *remote.Next) { n.CorrelationID = new("7") },
			"max_attempts": func(n *remote.Next) { n.MaxAttempts = new(-1) },
		} {
			wrong := next
			wrong.RetryDelays = slices.Clone(next.RetryDelays)
			change(&wrong)
			n++
			refused := p.create("continues", n).GetTaskUuid()
			require.Empty(t, s.report(remote.Report{Fence: s.step().Fence, Outcome: remote.Success, Next: &wrong}), want)
			failure := string(p.ended(t, refused, "error").Results)
			require.Contains(t, failure, want)
			require.Contains(t, failure, "NextTaskRefused")
		}
	})

	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("draws", "draws", "reads")
		s, text := p.session(t, 1, "draws", "reads"), func(s string) *string { return &s }
		fence := s.step().Fence
		for want, r := range map[string]remote.Report{
			"not both":           {ResultBytes: text(""), Result: json.RawMessage(`1`)},
			"want base64":        {ResultBytes: text("a?")},
			"invalid content_ty": {ResultBytes: text(""), ContentType: "png"},
			"at most 255 bytes":  {ResultBytes: text(""), ContentType: "image/" + strings.Repeat("p", 250)},
			"which are absent":   {Result: json.RawMessage(`1`), ContentType: "image/png"},
		} {
			r.Fence, r.Outcome = fence, remote.Success
			rejected := s.report(r)
			require.Len(t, rejected, 1, want)
			require.Equal(t, 400, rejected[0].Status, "it may be corrected")
			require.Contains(t, rejected[0].Error, want)
		}
		require.Empty(t, s.report(remote.Report{Fence: fence, Outcome: remote.Success, ResultBytes: text("AP8=")}))
		second := s.step()
		require.JSONEq(t, `{"$bytes":"AP8=","content_type":"application/octet-stream"}`, string(second.DependencyResults["draws_step"]))
		large := base64.StdEncoding.EncodeToString(make([]byte, 800<<10)) // less than 1 MiB, but for base64
		require.Empty(t, s.report(remote.Report{Fence: second.Fence, Outcome: remote.Success, ResultBytes: &large}))
		p.ended(t, task, "error")
		c := client.New(client.Config{BaseURL: p.rest})
		steps, err := c.Steps(p.ctx, task)
		require.NoError(t, err)
		failed := slices.IndexFunc(steps, func(step client.Step) bool { return step.Name == "reads_step" })
		shown, err := c.Step(p.ctx, task, steps[failed].StepUUID)
		require.NoError(t, err)
		require.Contains(t, string(shown.Results), "ResultNotStorable")
		require.Contains(t, string(shown.Results), "more than 1048576")
	})

	t.Run("a clean end", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("returned", "moved")
		s := p.session(t, 1, "moved")
		step := s.step()
		s.call(http.MethodDelete, s.base, nil, http.StatusOK, nil)
		s.call(http.MethodPost, s.base+"/poll", nil, http.StatusNotFound, nil)
		s = p.session(t, 1, "moved") // the step was handed back to the board
		again := s.step()
		require.Equal(t, 1, again.Attempt)
		require.NotEqual(t, step.Fence, again.Fence)
		require.Empty(t, s.report(remote.Report{Fence: again.Fence, Outcome: remote.Returned}))
		again = s.step()
		require.Equal(t, 1, again.Attempt)
		s.succeed(again, `1`)
		require.Equal(t, 1, p.ended(t, task, "complete").Attempts)
	})

	t.Run("failures and yields", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("failing", "failing")
		s := p.session(t, 1, "failing")
		step := s.step()
		require.Empty(t, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Yield, Checkpoint: &remote.Checkpoint{Cursor: json.RawMessage(`"a"`), Items: 3}}))
		step = s.step()
		require.Equal(t, 1, step.Attempt)
		require.JSONEq(t, `"a"`, string(step.Checkpoint.Cursor))
		require.Equal(t, 400, s.report(remote.Report{Fence: step.Fence, Outcome: "well"})[0].Status, "it may be corrected")
		require.Equal(t, 400, s.report(remote.Report{Fence: strings.Repeat("7", 1000), Outcome: remote.Success})[0].Status)
		require.Equal(t, 400, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Failure})[0].Status)
		require.Empty(t, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Failure, Error: &remote.Fault{Message: "busy", ErrorType: "Busy", RetryAfterMS: 1}}))
		step = s.step()
		require.Equal(t, 2, step.Attempt)
		permanent := false
		require.Empty(t, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Failure,
			Error: &remote.Fault{Message: "no more stock", ErrorType: "Stock", ErrorCode: "S1", Retryable: &permanent, Context: json.RawMessage(`{"left":0}`)}}))
		ended := p.ended(t, task, "error")
		doc, err := json.Marshal(ended)
		require.NoError(t, err)
		for _, want := range []string{"no more stock", `"Stock"`, `"S1"`} {
			require.Contains(t, string(doc), want)
		}
	})

	t.Run("events of a handler's own", func(t *testing.T) {
		t.Parallel()
		s := p.session(t, 1, "publishes")
		task := p.workflow("publishing", "publishes")
		step := s.step()
		events := []remote.Event{{Name: "stock.low", Payload: json.RawMessage(`{"left":1}`)}, {Name: "stock.counted"}}
		require.Equal(t, 400, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Yield, Checkpoint: &remote.Checkpoint{}, Events: events})[0].Status)
		require.Empty(t, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Success, Result: json.RawMessage(`7`), Events: events}))
		p.ended(t, task, "complete")
		var list struct {
			Events []struct {
				Name    string          `json:"event_name"`
				Payload json.RawMessage `json:"payload"`
			}
		}
		s.call(http.MethodGet, p.rest+"/v1/events?task_uuid="+task, nil, http.StatusOK, &list)
		require.Len(t, list.Events, 2)
		require.Equal(t, []string{"stock.low", "stock.counted"}, []string{list.Events[0].Name, list.Events[1].Name})
		require.JSONEq(t, `{"left":1}`, string(list.Events[0].Payload))
		require.JSONEq(t, `null`, string(list.Events[1].Payload))

		task = p.workflow("publishing_too_much", "publishes")
		step = s.step()
		events[0].Payload = json.RawMessage(`"` + strings.Repeat("x", 1<<18) + `"`)
		require.Empty(t, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Success, Events: events}))
		doc, err := json.Marshal(p.ended(t, task, "error"))
		require.NoError(t, err)
		require.Contains(t, string(doc), "EventNotPublished")
		s.call(http.MethodGet, p.rest+"/v1/events?task_uuid="+task, nil, http.StatusOK, &list)
		require.Empty(t, list.Events, "all of them or none")
	})

	t.Run("answers that are lost", func(t *testing.T) {
		t.Parallel()
		p.workflow("told", "told")
		s := p.session(t, 2, "told")
		step := s.step()
		s.after = 0 // it did not get the answer
		require.Equal(t, step.Fence, s.step().Fence)
		require.Empty(t, s.poll("0s").Steps, "it did now")
		s.succeed(step, `1`)
	})

	t.Run("cancelled steps", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("called_off", "called_off")
		s := p.session(t, 1, "called_off")
		step := s.step()
		r := request(t, http.MethodDelete, p.rest+"/v1/tasks/"+task, "")
		require.Equal(t, http.StatusOK, r.status, r.body)
		var told []remote.Cancelled
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			told = append(told, s.poll("1s").Cancelled...)
			return len(told) > 0, "no notice"
		})
		require.Equal(t, []remote.Cancelled{{Fence: step.Fence, Reason: "lease_lost"}}, told)
		require.Equal(t, 409, s.report(remote.Report{Fence: step.Fence, Outcome: remote.Success})[0].Status)
		p.workflow("permit_is_back", "called_off")
		s.succeed(s.step(), `1`)
	})

	t.Run("requests without meaning", func(t *testing.T) {
		t.Parallel()
		s := p.session(t, 1, "nothing")
		s.call(http.MethodPost, s.all, remote.Open{Protocol: 2, Callables: []remote.Callable{{Callable: "x"}}}, http.StatusBadRequest, nil)
		s.call(http.MethodPost, s.all, remote.Open{Protocol: 1}, http.StatusBadRequest, nil)
		s.call(http.MethodPost, s.all, remote.Open{Protocol: 1, Permits: 1_000_000, Callables: []remote.Callable{{Callable: "x"}}}, http.StatusBadRequest, nil)
		s.call(http.MethodPost, s.all, map[string]any{"protocol": 1, "permit": 7}, http.StatusBadRequest, nil)
		s.call(http.MethodPost, s.all, map[string]any{"protocol": 1, "callables": []any{map[string]any{"callable": "x"}}, "colour": "red"}, http.StatusCreated, nil)
		s.call(http.MethodPost, s.all+"/none/poll", nil, http.StatusNotFound, nil)
		s.call(http.MethodGet, s.base+"/results?step=a&fence=1.1", nil, http.StatusConflict, nil)
	})
}

// TestALostProcess: its steps run again after the grace, from their checkpoints.
func TestALostProcess(t *testing.T) {
	t.Parallel()
	p := remotePair(t, shortGrace)
	task := p.workflow("lost", "frail")
	dead := p.session(t, 1, "frail")
	step := dead.step()
	var saved struct {
		SavedAt time.Time `json:"saved_at"`
	}
	dead.call(http.MethodPost, dead.base+"/progress", remote.Progress{Fence: step.Fence, Fraction: 0.5, Message: "half"}, http.StatusOK, nil)
	running := p.worker.worker.Health().Steps
	require.Len(t, running, 1)
	require.InDelta(t, 0.5, running[0].Fraction, 0)
	require.Equal(t, "half", running[0].Message)
	dead.call(http.MethodPost, dead.base+"/progress", remote.Progress{Fence: "99.99"}, http.StatusConflict, nil)
	dead.call(http.MethodPost, dead.base+"/checkpoint", remote.Save{Fence: step.Fence, Checkpoint: remote.Checkpoint{Cursor: json.RawMessage(`7`), Items: 7}}, http.StatusOK, &saved)
	require.False(t, saved.SavedAt.IsZero())
	alive := p.session(t, 1, "frail")
	again := alive.step()
	require.Equal(t, 1, again.Attempt, "a loss uses no attempt")
	require.Equal(t, step.StepUUID, again.StepUUID)
	require.JSONEq(t, `7`, string(again.Checkpoint.Cursor))
	require.EqualValues(t, 7, again.Checkpoint.Items)
	dead.call(http.MethodPost, dead.base+"/reports", remote.Reports{Reports: []remote.Report{{Fence: step.Fence, Outcome: remote.Success}}}, http.StatusNotFound, nil)
	require.Equal(t, 409, alive.report(remote.Report{Fence: step.Fence, Outcome: remote.Success})[0].Status, "the fence of the lost process")
	alive.succeed(again, `1`)
	require.Equal(t, 1, p.ended(t, task, "complete").Attempts)
}

// TestSessionsWhileTheWorkerStops: a session learns that the worker stops, and what it
// reports then counts.
func TestSessionsWhileTheWorkerStops(t *testing.T) {
	t.Parallel()
	p := remotePair(t, longGrace)
	task := p.workflow("last", "last")
	s := p.session(t, 1, "last")
	step := s.step()
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), time.Minute)
		defer cancel()
		stopped <- p.worker.Stop(ctx)
	}()
	pgtest.Eventually(t, time.Minute, func() (bool, string) { return s.poll("1s").Draining, "not draining" })
	s.call(http.MethodPost, s.all, remote.Open{Protocol: 1, Callables: []remote.Callable{{Callable: "x"}}}, http.StatusServiceUnavailable, nil)
	s.succeed(step, `"in time"`)
	require.NoError(t, await(t, stopped))
	p.ended(t, task, "complete")
}
