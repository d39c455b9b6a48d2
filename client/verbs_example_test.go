package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/clienttest"
	"github.com/tasker-go/tasker/internal/wire"
)

const taskID, stepID = "0199f0a0-0000-7000-8000-000000000001", "0199f0a0-0000-7000-8000-000000000002"

// serving is a client of a server that gives these answers, one after the other.
func serving(answers ...any) (c *client.Client, closed func()) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if text, is := answers[asked.Add(1)-1].(string); is {
			_, _ = w.Write([]byte(text))
			return
		}
		_ = json.NewEncoder(w).Encode(answers[asked.Load()-1])
	}))
	return client.New(client.Config{BaseURL: server.URL, HTTP: server.Client()}), server.Close
}

// shop is an orchestrator whose template book_order makes invoices.
func shop() *clienttest.Server {
	s := clienttest.NewServer()
	s.Handle("book_order", func(client.TaskRequest) (any, error) { return map[string]string{"invoice": "R-17"}, nil })
	return s
}

func order(key string) client.TaskRequest {
	return client.TaskRequest{Namespace: "shop", Name: "book_order", Version: "1.0.0", Context: json.RawMessage(`{"cents":1200}`),
		Initiator: "shop", SourceSystem: "shop", Reason: "new order", IdempotencyKey: key}
}

var ctx = context.Background()

// A task is created, waited for, and its result decoded.
func ExampleRun() {
	s := shop()
	defer s.Close()
	booked, err := client.Run[struct{ Invoice string }](ctx, s.Client(), order("order-17"))
	fmt.Println(booked.Invoice, err)
	// Output: R-17 <nil>
}

// Creating and waiting for the end can be two calls, by different programs.
func ExampleClient_CreateTask() {
	s := shop()
	defer s.Close()
	c := s.Client()
	task, err := c.CreateTask(ctx, order("order-17"))
	if err != nil {
		fmt.Println(err)
		return
	}
	task, err = c.Task(ctx, task.TaskUUID, 30*time.Second, client.IncludeResults)
	fmt.Println(task.Status, string(task.Results["book_order"]), err)
	task, err = c.TaskByKey(ctx, "shop", "book_order", "order-17", 0)
	fmt.Println(task.Name, err)
	// Output:
	// complete {"invoice":"R-17"} <nil>
	// book_order <nil>
}

// Each task of a batch is created or refused on its own.
func ExampleClient_CreateTasks() {
	s := shop()
	defer s.Close()
	c := s.Client()
	batch, err := c.CreateTasks(ctx, []client.TaskRequest{order("order-1"), order("order-2"), order("order-1")})
	fmt.Println(batch.Created, batch.Failed, batch.Results[2].Error.Code, err)
	page, err := c.Tasks(ctx, client.TaskListOptions{Namespace: "shop", PerPage: 1})
	fmt.Println(page.Pagination.TotalCount, err)
	for task, err := range c.EachTask(ctx, client.TaskListOptions{Status: "complete"}) {
		fmt.Println(task.Name, err)
	}
	// Output:
	// 2 1 CONFLICT <nil>
	// 2 <nil>
	// book_order <nil>
	// book_order <nil>
}

func ExampleClient_CancelTask() {
	c, closed := serving(client.Task{Status: "cancelled"}, client.Task{Status: "cancelled"})
	defer closed()
	task, err := c.CancelTask(ctx, taskID, client.Why{})
	fmt.Println(task.Status, err)
	task, err = c.CancelTask(ctx, taskID, client.Why{Actor: "ana", Reason: "ordered twice"})
	fmt.Println(task.Status, err)
	// Output:
	// cancelled <nil>
	// cancelled <nil>
}

// What a task has done, in rising detail.
func ExampleClient_Steps() {
	c, closed := serving([]client.Step{{Name: "charge"}}, client.Step{Name: "charge", Results: json.RawMessage(`{"success":true}`)},
		[]client.StepAudit{{StepName: "charge", Success: true}}, client.TaskSummary{Task: client.TaskSummaryMetadata{HealthStatus: "healthy"}},
		client.TaskContext{Outputs: map[string]json.RawMessage{"charge": json.RawMessage(`7`)}},
		client.Timeline{Events: []client.TimelineEvent{{To: "complete"}}}, client.TaskGraph{Steps: []client.GraphStep{{Name: "charge", DependsOn: []int{}}}}, client.LogPage{Lines: []client.LogLine{{Text: "charged"}}}, client.Verification{OK: true}, client.Chain{Tasks: []client.Task{{}, {}}})
	defer closed()
	steps, err := c.Steps(ctx, taskID)
	fmt.Println(steps[0].Name, err)
	step, err := c.Step(ctx, taskID, stepID)
	fmt.Println(string(step.Results), err)
	audit, err := c.StepAudit(ctx, taskID, stepID)
	fmt.Println(audit[0].Success, err)
	summary, err := c.TaskSummary(ctx, taskID)
	fmt.Println(summary.Task.HealthStatus, err)
	with, err := c.TaskContext(ctx, taskID)
	fmt.Println(string(with.Outputs["charge"]), err)
	history, err := c.Timeline(ctx, taskID)
	fmt.Println(history.Events[0].To, err)
	graph, err := c.TaskGraph(ctx, taskID)
	fmt.Println(graph.Steps[0].Name, err)
	logs, err := c.TaskLogs(ctx, taskID, client.LogOptions{Step: "charge", Level: "info"})
	fmt.Println(logs.Lines[0].Text, err)
	verified, err := c.VerifyTask(ctx, taskID)
	fmt.Println(verified.OK, err)
	chain, err := c.Chain(ctx, taskID, 0)
	fmt.Println(len(chain.Tasks), err)
	// Output:
	// charge <nil>
	// {"success":true} <nil>
	// true <nil>
	// healthy <nil>
	// 7 <nil>
	// complete <nil>
	// charge <nil>
	// charged <nil>
	// true <nil>
	// 2 <nil>
}

// An action is previewed, done, and done to many tasks.
func ExampleClient_ActOnTask() {
	c, closed := serving(client.ActionPreview{Steps: []client.StepPreview{{Name: "charge", To: "pending"}}}, client.Task{Status: "waiting_for_retry"},
		client.Step{CurrentState: "complete"}, client.BulkResult{Matched: 3, DryRun: true})
	defer closed()
	again := client.TaskAction{Action: client.ActionReset, StepUUID: stepID, Actor: "ana", Reason: "the bank is back"}
	preview, err := c.PreviewAction(ctx, taskID, again)
	fmt.Println(preview.Steps[0].Name, preview.Steps[0].To, err)
	task, err := c.ActOnTask(ctx, taskID, again)
	fmt.Println(task.Status, err)
	step, err := c.ActOnStep(ctx, taskID, stepID, client.StepAction{ActionType: client.ActionComplete, CompletedBy: "ana", Reason: "paid in cash",
		CompletionData: &client.CompletionData{Result: json.RawMessage(`{"paid":true}`)}})
	fmt.Println(step.CurrentState, err)
	many, err := c.ActOnTasks(ctx, client.BulkAction{Filter: client.BulkFilter{Namespace: "shop", States: []string{"error"}},
		Action: client.ActionReset, Actor: "ana", Reason: "the bank is back"}) // a preview, unless DryRun is false
	fmt.Println(many.Matched, many.DryRun, err)
	// Output:
	// charge pending <nil>
	// waiting_for_retry <nil>
	// complete <nil>
	// 3 true <nil>
}

func ExampleClient_RegisterTemplate() {
	c, closed := serving(client.TemplateDetail{Version: "1.1.0"}, client.TemplateList{TotalCount: 4},
		client.TemplateDetail{Steps: []client.TemplateStep{{Name: "charge"}}}, client.TemplateDetail{}, client.TemplateDetail{})
	defer closed()
	template, err := c.RegisterTemplate(ctx, client.TemplateSource{Actor: "ana",
		Source: `{name: book_order, namespace_name: shop, version: 1.1.0, steps: [{name: charge, handler: {callable: charge}}]}`})
	fmt.Println(template.Version, err)
	list, err := c.Templates(ctx, "shop")
	fmt.Println(list.TotalCount, err)
	template, err = c.Template(ctx, "shop", "book_order", "1.1.0")
	fmt.Println(template.Steps[0].Name, err)
	_, err = c.DeprecateTemplate(ctx, "shop", "book_order", "1.0.0", client.Why{Reason: "see 1.1.0"})
	fmt.Println(err)
	_, err = c.UndeprecateTemplate(ctx, "shop", "book_order", "1.0.0", client.Why{})
	fmt.Println(err)
	// Output:
	// 1.1.0 <nil>
	// 4 <nil>
	// charge <nil>
	// <nil>
	// <nil>
}

// A task type is a template of one step; its tasks are queued with a payload.
func ExampleClient_Enqueue() {
	c, closed := serving(client.TaskType{Name: "mail"}, client.Enqueued{ID: taskID}, client.EnqueuedTask{Status: "complete"},
		wire.TaskTypeList{TaskTypes: []client.TaskType{{Name: "mail"}}}, client.TaskType{Handler: "send_mail"}, client.TaskType{})
	defer closed()
	_, err := c.PutTaskType(ctx, "mail", client.TaskTypeRequest{Handler: "send_mail"})
	fmt.Println(err)
	queued, err := c.Enqueue(ctx, client.EnqueueRequest{Type: "mail", Payload: json.RawMessage(`{"to":"bo@shop.example"}`), IdempotencyKey: "order-17"})
	fmt.Println(queued.ID == taskID, err)
	task, err := c.EnqueuedTask(ctx, queued.ID, 30*time.Second)
	fmt.Println(task.Status, err)
	types, err := c.TaskTypes(ctx, client.TaskTypeListOptions{})
	fmt.Println(types[0].Name, err)
	one, err := c.TaskType(ctx, "", "mail")
	fmt.Println(one.Handler, err)
	_, err = c.DeleteTaskType(ctx, "", "mail", client.Why{Reason: "no longer sent"})
	fmt.Println(err)
	// Output:
	// <nil>
	// true <nil>
	// complete <nil>
	// mail <nil>
	// send_mail <nil>
	// <nil>
}

func ExampleClient_CreateSchedule() {
	nightly := client.Schedule{ScheduleID: taskID, Name: "nightly", Cron: "0 3 * * *"}
	c, closed := serving(nightly, client.ScheduleList{Schedules: []client.Schedule{nightly}}, nightly, nightly,
		client.NextRuns{Runs: []client.NextRun{{Local: "2026-12-01 03:00"}}}, client.ScheduleRun{TaskUUID: taskID}, nightly, nightly, nightly)
	defer closed()
	s, err := c.CreateSchedule(ctx, client.ScheduleRequest{Namespace: "shop", Name: "nightly", Template: "report", Version: "1.0.0",
		Cron: "0 3 * * *", TimeZone: "Europe/Berlin"})
	fmt.Println(s.Name, err)
	list, err := c.Schedules(ctx, client.ScheduleListOptions{Namespace: "shop"})
	fmt.Println(len(list.Schedules), err)
	s, err = c.Schedule(ctx, s.ScheduleID)
	fmt.Println(s.Cron, err)
	cron := "0 4 * * *"
	_, err = c.UpdateSchedule(ctx, s.ScheduleID, client.ScheduleUpdate{Cron: &cron, Actor: "ana"})
	fmt.Println(err)
	next, err := c.NextRuns(ctx, s.ScheduleID, 1)
	fmt.Println(next.Runs[0].Local, err)
	run, err := c.RunSchedule(ctx, s.ScheduleID, client.Why{Reason: "a report for today"})
	fmt.Println(run.TaskUUID == taskID, err)
	_, err = c.PauseSchedule(ctx, s.ScheduleID, client.Why{Reason: "holidays"})
	fmt.Println(err)
	_, err = c.ResumeSchedule(ctx, s.ScheduleID, client.Why{})
	fmt.Println(err)
	_, err = c.DeleteSchedule(ctx, s.ScheduleID, client.Why{})
	fmt.Println(err)
	// Output:
	// nightly <nil>
	// 1 <nil>
	// 0 3 * * * <nil>
	// <nil>
	// 2026-12-01 03:00 <nil>
	// true <nil>
	// <nil>
	// <nil>
	// <nil>
}

// A step of type approval waits for a decision.
func ExampleClient_Decide() {
	waiting := client.Approval{Token: "t-1", Prompt: "Pay 5,000?"}
	c, closed := serving(wire.Approvals{Approvals: []client.Approval{waiting}}, waiting, waiting)
	defer closed()
	list, err := c.Approvals(ctx, client.ApprovalListOptions{Namespace: "shop"})
	fmt.Println(list[0].Prompt, err)
	one, err := c.Approval(ctx, "t-1")
	fmt.Println(one.Prompt, err)
	_, err = c.Decide(ctx, "t-1", client.Verdict{Approved: true, Actor: "ana"})
	fmt.Println(err)
	// Output:
	// Pay 5,000? <nil>
	// Pay 5,000? <nil>
	// <nil>
}

// A stream of transitions continues where it was when its connection breaks, and ends with the
// task that it is of.
func ExampleClient_Transitions() {
	c, closed := serving("event: open\nid: 1\ndata: {}\n\n"+
		"event: step\ndata: {\"step\":\"charge\",\"attempt\":1,\"outcome\":\"success\"}\n\n"+
		"event: task\nid: 2\ndata: {\"from\":\"steps_in_process\",\"state\":\"complete\"}\n\n",
		"event: lines\nid: 1:1:\ndata: {\"lines\":[{\"text\":\"charged\",\"step_name\":\"charge\"}]}\n\nevent: end\ndata: {}\n\n")
	defer closed()
	for x, err := range c.Transitions(ctx, client.TransitionOptions{TaskUUID: "0190b6f2-3c5e-7d8a-9f10-6b1c2d3e4f50"}) {
		fmt.Println(x.Event, x.Step, x.Outcome, x.State, err)
	}
	for l, err := range c.FollowTaskLogs(ctx, "0190b6f2-3c5e-7d8a-9f10-6b1c2d3e4f50", client.LogOptions{Level: "info"}) {
		fmt.Println(l.StepName, l.Text, err)
	}
	// Output:
	// open    <nil>
	// step charge success  <nil>
	// task   complete <nil>
	// charge charged <nil>
}

// Without a consumer events are read from a position, or followed as they come.
func ExampleClient_StreamEvents() {
	paid := client.Event{Position: 7, Name: "payment.received"}
	text, _ := json.Marshal(paid)
	c, closed := serving(client.EventList{Events: []client.Event{paid}, Next: 7}, "data: "+string(text)+"\n\n")
	defer closed()
	list, err := c.Events(ctx, client.EventListOptions{Name: "payment.*"})
	fmt.Println(list.Events[0].Name, list.Next, err)
	enough := errors.New("enough")
	err = c.StreamEvents(ctx, client.EventListOptions{Name: "payment.*"}, func(e client.Event) error {
		fmt.Println(e.Position)
		return enough
	})
	fmt.Println(err)
	// Output:
	// payment.received 7 <nil>
	// 7
	// enough
}

// A consumer keeps a position: each event is handled at least once.
func ExampleClient_ClaimEvents() {
	mailer := client.EventConsumer{Name: "mailer", Position: 7}
	c, closed := serving(mailer, client.ClaimedEvents{Token: 3, Events: []client.Event{{Position: 7, Name: "payment.received"}}}, mailer,
		wire.EventConsumerList{Consumers: []client.EventConsumer{mailer}}, mailer, mailer, mailer)
	defer closed()
	_, err := c.CreateEventConsumer(ctx, client.EventConsumerRequest{Name: "mailer", Namespace: "shop", Patterns: []string{"payment.*"}})
	fmt.Println(err)
	claimed, err := c.ClaimEvents(ctx, "mailer", client.EventClaim{Worker: "mailer-1"})
	fmt.Println(claimed.Events[0].Name, err)
	_, err = c.AckEvents(ctx, "mailer", client.EventAck{Token: claimed.Token, Position: claimed.Events[0].Position})
	fmt.Println(err)
	all, err := c.EventConsumers(ctx)
	fmt.Println(len(all), err)
	one, err := c.EventConsumer(ctx, "mailer")
	fmt.Println(one.Position, err)
	_, err = c.ResetEventConsumer(ctx, "mailer", client.EventReset{To: client.EventsFromBeginning, Reason: "mails were lost"})
	fmt.Println(err)
	_, err = c.DeleteEventConsumer(ctx, "mailer", client.Why{})
	fmt.Println(err)
	// Output:
	// <nil>
	// payment.received <nil>
	// <nil>
	// 1 <nil>
	// 7 <nil>
	// <nil>
	// <nil>
}

// A dead letter is found, investigated, replayed and, when closed, deleted.
func ExampleClient_DLQEntries() {
	letter := client.DLQEntry{DLQEntryUUID: stepID, TaskUUID: taskID, DLQReason: client.ReasonMaxRetriesExceeded}
	c, closed := serving(letter, []client.DLQEntry{letter}, letter, []client.DLQStats{{TotalEntries: 1}}, []client.DLQQueueEntry{{PriorityScore: 512}},
		[]client.StalenessEntry{{HealthStatus: "warning"}}, client.DLQUpdated{Success: true}, client.BulkResult{Matched: 1, DryRun: true}, client.DLQPurged{Purged: 2, DryRun: true})
	defer closed()
	_, err := c.AddDLQEntry(ctx, client.DLQAdd{TaskUUID: taskID, Reason: "a wrong amount", Actor: "ana"})
	fmt.Println(err)
	pending, err := c.DLQEntries(ctx, client.DLQListOptions{ResolutionStatus: client.ResolutionPending})
	fmt.Println(pending[0].DLQReason, err)
	entry, err := c.DLQEntryOfTask(ctx, taskID)
	fmt.Println(entry.TaskUUID == taskID, err)
	stats, err := c.DLQStats(ctx)
	fmt.Println(stats[0].TotalEntries, err)
	queue, err := c.InvestigationQueue(ctx, 10)
	fmt.Println(queue[0].PriorityScore, err)
	stale, err := c.Staleness(ctx, 10)
	fmt.Println(stale[0].HealthStatus, err)
	resolved, by := client.ResolutionManuallyResolved, "ana"
	updated, err := c.UpdateDLQEntry(ctx, entry.DLQEntryUUID, client.DLQUpdate{ResolutionStatus: &resolved, ResolvedBy: &by})
	fmt.Println(updated.Success, err)
	replay, err := c.ReplayDLQ(ctx, client.DLQReplay{Filter: &client.DLQFilter{Namespace: "shop"}, Reason: "the bank is back", Actor: "ana"})
	fmt.Println(replay.Matched, replay.DryRun, err)
	week := int64(7 * 24 * 3600)
	purged, err := c.PurgeDLQ(ctx, client.DLQPurge{OlderThanSeconds: &week, Reason: "tidy", Actor: "ana"})
	fmt.Println(purged.Purged, purged.DryRun, err)
	// Output:
	// <nil>
	// MaxRetriesExceeded <nil>
	// true <nil>
	// 1 <nil>
	// 512 <nil>
	// warning <nil>
	// true <nil>
	// 1 true <nil>
	// 2 true <nil>
}

// Items that a batch could not process are listed and replayed.
func ExampleClient_ReplayIsolated() {
	task := taskID
	c, closed := serving(client.Batches{Groups: []client.BatchGroup{{Complete: 9, IsolatedItems: 2}}}, client.IsolatedItems{},
		client.IsolatedReplayed{TaskUUID: &task, Items: 2})
	defer closed()
	batches, err := c.Batches(ctx, taskID)
	fmt.Println(batches.Groups[0].Complete, batches.Groups[0].IsolatedItems, err)
	_, err = c.IsolatedItems(ctx, taskID, client.IsolatedOptions{Limit: 10})
	fmt.Println(err)
	replayed, err := c.ReplayIsolated(ctx, taskID, client.IsolatedReplay{})
	fmt.Println(replayed.Items, err)
	// Output:
	// 9 2 <nil>
	// <nil>
	// 2 <nil>
}

// A route without a method of its own.
func ExampleClient_Call() {
	c, closed := serving(wire.PolicyList{Policies: []wire.Policy{{Namespace: "shop", Callable: "charge", Policy: "fifo"}}})
	defer closed()
	var list struct {
		Policies []struct{ Callable, Policy string }
	}
	err := c.Call(ctx, "PUT", []string{"v1", "namespaces", "shop", "policies", "charge"},
		map[string]string{"policy": "fifo", "reason": "the first comes first", "actor": "ana"}, &list)
	fmt.Println(list.Policies, err)
	// Output:
	// [{charge fifo}] <nil>
}

// Steps of a namespace, or of one callable in it, are not claimed for a while.
func ExampleClient_PauseNamespace() {
	paused, running := client.Namespace{Name: "shop", Paused: true}, client.Namespace{Name: "shop"}
	c, closed := serving(paused, wire.NamespaceList{Namespaces: []client.Namespace{paused}}, running, running, running)
	defer closed()
	n, err := c.PauseNamespace(ctx, "shop", client.Why{Actor: "ana", Reason: "the bank is down"})
	fmt.Println(n.Paused, err)
	list, err := c.Namespaces(ctx)
	fmt.Println(list[0].Name, err)
	n, err = c.ResumeNamespace(ctx, "shop", client.Why{})
	fmt.Println(n.Paused, err)
	_, err = c.PauseCallable(ctx, "shop", "charge", client.Why{})
	fmt.Println(err)
	_, err = c.ResumeCallable(ctx, "shop", "charge", client.Why{})
	fmt.Println(err)
	// Output:
	// true <nil>
	// shop <nil>
	// false <nil>
	// <nil>
	// <nil>
}

func ExampleClient_Fleet() {
	c, closed := serving(client.Fleet{Replicas: []client.Replica{{Kind: "orchestrator", Live: true}}}, wire.WorkerList{},
		wire.DeploymentMode{Mode: "Hybrid"}, wire.DeploymentMode{Mode: "PollingOnly"}, wire.SweepList{}, client.SweepRun{},
		wire.BreakerList{}, client.Breaker{}, wire.LogLevels{Levels: map[string]string{"all": "info", "worker": "debug"}})
	defer closed()
	fleet, err := c.Fleet(ctx)
	fmt.Println(fleet.Replicas[0].Kind, fleet.Replicas[0].Live, err)
	_, err = c.Workers(ctx, client.WorkerListOptions{Namespace: "shop"})
	fmt.Println(err)
	mode, err := c.Mode(ctx)
	fmt.Println(mode, err)
	mode, err = c.SetMode(ctx, "PollingOnly")
	fmt.Println(mode, err)
	_, err = c.Sweeps(ctx)
	fmt.Println(err)
	_, err = c.RunSweep(ctx, "retention", client.SweepRequest{DryRun: true})
	fmt.Println(err)
	_, err = c.Breakers(ctx)
	fmt.Println(err)
	_, err = c.ForceBreaker(ctx, "web", "open")
	fmt.Println(err)
	levels, err := c.LogLevels(ctx, map[string]string{"worker": "debug"})
	fmt.Println(levels["worker"], err)
	// Output:
	// orchestrator true <nil>
	// <nil>
	// Hybrid <nil>
	// PollingOnly <nil>
	// <nil>
	// <nil>
	// <nil>
	// <nil>
	// debug <nil>
}

func ExampleClient_Ready() {
	c, closed := serving(client.Health{Status: "healthy"}, client.Health{Status: "alive"}, client.DetailedHealth{Status: "ready"},
		client.DetailedHealth{Status: "degraded"}, "# TYPE tasker_info gauge\n", client.OrchestratorConfig{DeploymentMode: "Hybrid"})
	defer closed()
	health, err := c.Health(ctx)
	fmt.Println(health.Status, err)
	health, err = c.Live(ctx)
	fmt.Println(health.Status, err)
	ready, err := c.Ready(ctx)
	fmt.Println(ready.Status, err)
	detailed, err := c.DetailedHealth(ctx)
	fmt.Println(detailed.Status, err)
	metrics, err := c.Metrics(ctx)
	fmt.Println(strings.Contains(string(metrics), "tasker_info"), err)
	shown, err := c.OrchestratorConfig(ctx)
	fmt.Println(shown.DeploymentMode, err)
	// Output:
	// healthy <nil>
	// alive <nil>
	// ready <nil>
	// degraded <nil>
	// true <nil>
	// Hybrid <nil>
}

// A client whose BaseURL is that of a worker has the worker's own routes.
func ExampleClient_WorkerTemplates() {
	c, closed := serving(client.WorkerTemplates{SupportedNamespaces: []string{"shop"}}, client.WorkerTemplate{Template: client.ResolvedTemplate{Environment: "production"}},
		client.TemplateValidation{Valid: true}, client.WorkerConfig{WorkerType: "go"}, client.WorkerMetrics{WorkerID: "worker-1"})
	defer closed()
	known, err := c.WorkerTemplates(ctx, "shop", false)
	fmt.Println(known.SupportedNamespaces, err)
	template, err := c.WorkerTemplate(ctx, "shop", "book_order", "1.0.0")
	fmt.Println(template.Template.Environment, err)
	runs, err := c.ValidateTemplate(ctx, "shop", "book_order", "1.0.0")
	fmt.Println(runs.Valid, err)
	shown, err := c.WorkerConfig(ctx)
	fmt.Println(shown.WorkerType, err)
	metrics, err := c.WorkerMetrics(ctx)
	fmt.Println(metrics.WorkerID, err)
	// Output:
	// [shop] <nil>
	// production <nil>
	// true <nil>
	// go <nil>
	// worker-1 <nil>
}

func ExampleClient_Performance() {
	c, closed := serving(client.Performance{CompletedTasks: 96, CompletionRate: 96}, client.Bottlenecks{SlowSteps: []client.SlowStep{{StepName: "charge"}}})
	defer closed()
	day, err := c.Performance(ctx, 24)
	fmt.Println(day.CompletedTasks, day.CompletionRate, err)
	slow, err := c.Bottlenecks(ctx, 10, 5)
	fmt.Println(slow.SlowSteps[0].StepName, err)
	// Output:
	// 96 96 <nil>
	// charge <nil>
}

// Shows who the credentials of the client are, and ends a forgotten login of a browser.
func ExampleClient_Me() {
	ctx := context.Background()
	c, closed := serving(client.Me{Principal: "ana", Namespaces: []string{"shop"}}, wire.BrowserSessionList{}, client.BrowserSession{Principal: "ana"})
	defer closed()
	me, err := c.Me(ctx)
	fmt.Println(me.Principal, me.Namespaces, err)
	_, err = c.BrowserSessions(ctx, client.BrowserSessionListOptions{})
	fmt.Println(err)
	ended, err := c.EndBrowserSession(ctx, "0190b6f2-3c5e-7d8a-9f10-6b1c2d3e4f50", client.Why{Reason: "left open"})
	fmt.Println(ended.Principal, err)
	// Output:
	// ana [shop] <nil>
	// <nil>
	// ana <nil>
}

// Makes an API key, changes over to a new one, and revokes that.
func ExampleClient_CreateAPIKey() {
	ctx := context.Background()
	made := client.APIKey{KeyUUID: "0190b6f2-3c5e-7d8a-9f10-6b1c2d3e4f50", Name: "shop", Key: "tsk_…"}
	c, closed := serving(made, made, wire.APIKeyList{APIKeys: []client.APIKey{made}}, made)
	defer closed()
	key, err := c.CreateAPIKey(ctx, client.APIKeyRequest{Name: "shop", Permissions: []string{"tasks:create"}, Namespaces: []string{"shop"}})
	fmt.Println(key.Key, err)
	key, err = c.RotateAPIKey(ctx, key.KeyUUID, client.APIKeyRotation{Reason: "every quarter"})
	fmt.Println(key.Name, err)
	keys, err := c.APIKeys(ctx, 0)
	fmt.Println(len(keys), err)
	_, err = c.RevokeAPIKey(ctx, key.KeyUUID, client.Why{Reason: "lost"})
	fmt.Println(err)
	// Output:
	// tsk_… <nil>
	// shop <nil>
	// 1 <nil>
	// <nil>
}

// Reads what operators have done in a namespace, page by page.
func ExampleClient_Audit() {
	ctx := context.Background()
	c, closed := serving(client.AuditList{Records: []client.AuditRecord{{Actor: "ana", Action: "pause_namespace"}}})
	defer closed()
	for o := (client.AuditOptions{Namespace: "shop"}); ; {
		page, err := c.Audit(ctx, o)
		if err != nil {
			break
		}
		for _, r := range page.Records {
			fmt.Println(r.Actor, r.Action)
		}
		if o.Cursor = page.NextCursor; o.Cursor == "" {
			break
		}
	}
	// Output: ana pause_namespace
}

func ExampleClient_CallableRates() {
	ctx := context.Background()
	c, closed := serving(
		client.CallableRatesList{Callables: []client.CallableRates{{Namespace: "shop", Callable: "charge", AttemptRates: client.AttemptRates{Success: 98, Error: 2}}}},
		client.CallableSeries{Points: []client.CallablePoint{{AttemptRates: client.AttemptRates{Running: client.Durations{Count: 100, P95: 0.25}}}}},
		client.NamespaceRatesList{Namespaces: []client.NamespaceRates{{Namespace: "shop", TaskRates: client.TaskRates{Created: 100}}}})
	defer closed()
	day := client.RatesOptions{Last: 24 * time.Hour}
	rates, err := c.CallableRates(ctx, "shop", day)
	if err != nil {
		return
	}
	for i := range rates.Callables {
		r := &rates.Callables[i]
		series, err := c.CallableSeries(ctx, r.Namespace, r.Callable, r.Method, r.Resolver, day)
		if err != nil {
			return
		}
		fmt.Printf("%s: %d of %d failed for good\n", r.Callable, r.Error, r.Attempts())
		for j := range series.Points {
			fmt.Printf("95 %% took at most %v s\n", series.Points[j].Running.P95)
		}
	}
	tasks, err := c.NamespaceRates(ctx, "", day)
	if err != nil {
		return
	}
	fmt.Println(tasks.Namespaces[0].Created, "tasks created")
	// Output:
	// charge: 2 of 100 failed for good
	// 95 % took at most 0.25 s
	// 100 tasks created
}
