package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
)

// sample is a workflow of package examples with an input.
type sample struct {
	name, about, input string
	ends               string // "": complete
}

// samples are what the demonstration runs; the first is shown in full.
var samples = []sample{
	{name: "diamond", about: "two branches side by side", input: `{"even_number": 6}`},
	{name: "mathematical_sequence", about: "four steps in a line", input: `{"even_number": 6}`},
	{name: "order_fulfillment", about: "a payment that fails twice and is retried", input: `{"customer": {"id": 7, "email": "a@example.org"},
		"items": [{"sku": "WIDGET", "quantity": 2, "unit_price_cents": 2999}],
		"payment": {"method": "card", "token": "tok_flaky"}, "shipping": {"method": "standard", "address": {"city": "Bern"}}}`},
	{name: "expense_approval", about: "a decision that creates two branches", input: `{"amount": 5000}`},
	{name: "count_primes", about: "batches side by side, added up", input: `{"below": 100000}`},
	{name: "book_trip", about: "a saga: the payment fails, the bookings are cancelled", input: `{"traveller": "a", "fails_at": "pay"}`, ends: "error"},
}

// demoPatience bounds each call and each wait of the demonstration.
const demoPatience = 30 * time.Second

// demonstrate runs the samples as a client would and shows what happened.
func (o *devOptions) demonstrate(ctx context.Context, base string) error {
	c := client.New(client.Config{BaseURL: base, Timeout: demoPatience})
	first := samples[0]
	fmt.Fprintf(o.app.stdout, "\nPOST /v1/tasks   examples/%s 1.0.0 %s\n", first.name, first.input)
	task, err := o.runSample(ctx, c, first)
	if err != nil {
		return err
	}
	timeline, err := c.Timeline(ctx, task.TaskUUID)
	if err != nil {
		return fmt.Errorf("read the timeline: %w", err)
	}
	fmt.Fprintf(o.app.stdout, "task %s is %s\n\n", task.TaskUUID, task.Status)
	o.app.showTimeline(timeline)
	o.app.showOutcome(ctx, c, task)
	fmt.Fprintln(o.app.stdout, "\nmore samples")
	t := o.app.newTable("WORKFLOW", "SHOWS", "STATUS", "STEPS", "TASK")
	for _, s := range samples[1:] {
		task, err := o.runSample(ctx, c, s)
		if err != nil {
			return err
		}
		t.row(s.name, s.about, stateCell(task.Status), task.TotalSteps, task.TaskUUID)
	}
	t.write(o.app.stdout)
	return nil
}

// runSample creates a task and waits for its end.
func (o *devOptions) runSample(ctx context.Context, c *api, s sample) (*client.Task, error) {
	task, err := c.CreateTask(ctx, client.TaskRequest{Name: s.name, Namespace: "examples", Version: "1.0.0",
		Context: json.RawMessage(s.input), Initiator: "tasker-ctl", SourceSystem: "cli", Reason: "demonstration",
		IdempotencyKey: "demo-" + o.app.now().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		return nil, fmt.Errorf("submit the sample %s: %w", s.name, err)
	}
	if task, err = c.Task(ctx, task.TaskUUID, demoPatience); err != nil {
		return nil, fmt.Errorf("wait for the sample %s: %w", s.name, err)
	}
	if want := cmp.Or(s.ends, "complete"); task.Status != want {
		return nil, failure(fmt.Sprintf("the sample %s is %s, not %s", s.name, task.Status, want))
	}
	return task, nil
}

// suggest tells what can be done now.
func (o *devOptions) suggest(base string) {
	self := commandName()
	if base != "http://127.0.0.1:8080" {
		self += " --orchestration-url " + base
	}
	fmt.Fprintf(o.app.stdout, "\nTry in another terminal:\n  curl %s/health/detailed\n  curl '%s/v1/tasks?per_page=5'\n"+
		"  %s template list\n  %s task create --name diamond -n examples -i '{\"even_number\": 8}' --wait 10s\n", base, base, self, self)
	if o.join != "" {
		fmt.Fprintf(o.app.stdout, "\nA worker of yours joins after:\n  export DATABASE_URL='%s'\n", o.join)
	}
	fmt.Fprint(o.app.stdout, "\nCtrl-C ends it.\n")
}

// commandName is how this program is called in a shell: by its name where that
// leads to it, else by its path.
func commandName() string {
	self, err := os.Executable()
	if err != nil {
		return "tasker-ctl"
	}
	name := filepath.Base(self)
	if found, err := exec.LookPath(name); err == nil && sameFile(found, self) {
		return name
	}
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, self); err == nil && filepath.IsLocal(rel) {
			return "." + string(filepath.Separator) + rel
		}
	}
	if strings.ContainsAny(self, " '\"$") {
		return "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
	}
	return self
}

func sameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}
