package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/tasker-go/tasker/client"
)

const (
	// maxInput bounds what is read; the server's own bound is 1 MiB.
	maxInput      = 2 << 20
	defaultReason = "CLI task creation"
)

func (a *app) taskCreate() command {
	r := client.TaskRequest{Namespace: "default", Initiator: "tasker-ctl", SourceSystem: "cli"}
	var description string
	var useExisting bool
	var delay, wait time.Duration
	return command{
		use: "create", short: "Create a task from a template",
		long: `Creates a task. With --wait it then waits for the task to end and shows the
results of its steps: the exit code is 0 when it completed, 1 when it ended
otherwise or has not ended in that time. A warning says when no live worker has a
handler for a step that could run.
A repeated call with the same --idempotency-key creates nothing and exits with 4,
naming the task that exists, or shows that with --use-existing; without a key the
template says what counts as the same task, by default the same input.`,
		example: "  tasker-ctl task create --name process_refund -n payments -i '{\"order\": 7}'\n" +
			"  tasker-ctl task create --name import --input @products.json --wait 2m\n" +
			"  jq -n '{order: 7}' | tasker-ctl task create --name process_refund -n payments -i -",
		flags: all(
			a.templateFlag(&r.Name, "name of the template", needed, notEmpty),
			opt(&r.Namespace, "namespace,n", "namespace of the template", notEmpty, a.offering(byNamespace)),
			opt(&r.Version, "version", "version of the template (default the highest that is not deprecated)", a.offering(byVersion), also("v")),
			opt(&r.Context, "input,i", "input as a JSON object, @file, or - for stdin", needed, anObject),
			opt(&description, "description,d", "what the task is for; sent as its reason"),
			opt(&r.Priority, "priority", "priority, -100 to 100; higher goes first (default the template's, or 0)", aPriority, also("p")),
			opt(&r.PriorityLevel, "priority-level", "in place of the priority: 1, which goes first, to 10", aPriorityLevel),
			opt(&r.CorrelationID, "correlation-id", "`UUID` to find everything that belongs together by", aUUID, also("c")),
			keyFlag(&r.IdempotencyKey, "`key` under which repeated calls create one task"),
			opt(&useExisting, "use-existing", "with an --idempotency-key: show the task that exists for it"),
			opt(&r.Tags, "tag", "tag of the task; may be repeated"),
			opt(&r.Reason, "reason,r", "why the task is created (default \""+defaultReason+"\")"),
			opt(&r.DependsOn, "depends-on", "`UUID` of a task that must end first; may be repeated", a.aTask),
			opt(&r.OnDependencyFailure, "on-dependency-failure", "when such a task fails: fail (cancel this task) or continue"),
			opt(&delay, "delay", "do not start before this time has passed", notNegative),
			opt(&r.StartAt, "start-at", "do not start before this `time` (RFC 3339)", ahead),
			opt(&r.MaxAttempts, "max-attempts", "executions of each retryable step (default the template's)"),
			opt(&r.RetryDelays, "retry-delays", "exact delays before each further execution, such as 10s,5m,2d; in place of the template's",
				withCommas),
			waitFlag(&wait),
		),
		either: [][2]string{{"priority", "priority-level"}, {"start-at", "delay"}},
		check: func([]string) error {
			r.Reason = cmp.Or(r.Reason, description, defaultReason)
			if delay > 0 {
				r.DelaySeconds = new(delay.Seconds())
			}
			if !useExisting {
				return nil
			}
			r.ConflictPolicy = client.ConflictUseExisting
			if r.IdempotencyKey == "" {
				return usagef("--use-existing needs an --idempotency-key")
			}
			return nil
		},
		run: func(ctx context.Context, c *api, _ []string) error { return a.createTask(ctx, c, r, wait) },
	}
}

// createTask creates the task and, when asked to, waits for its end.
func (a *app) createTask(ctx context.Context, c *api, r client.TaskRequest, wait time.Duration) error {
	task, err := c.CreateTask(ctx, r)
	if err != nil {
		return explainCreate(err)
	}
	what := "created task"
	if r.ConflictPolicy == client.ConflictUseExisting {
		what = "task" // it may have been there
	}
	if wait == 0 {
		return a.emit(task, func() { a.printf("%s %s (%s)\n", what, task.TaskUUID, task.Status) })
	}
	if a.global.output == formatTable {
		a.printf("%s %s\n", what, task.TaskUUID)
	}
	id := task.TaskUUID
	if why := a.unserved(ctx, c, task); why != "" {
		a.warnf("%s; the task waits for one", why)
	}
	if task, err = a.awaitEnd(ctx, c, id, wait); err != nil {
		return fmt.Errorf("wait for task %s: %w", id, err)
	}
	if err := a.emit(task, func() { a.printf("task %s: %s\n", id, task.Status) }); err != nil {
		return err
	}
	if !task.Terminal() {
		why := suffixed(": ", a.unserved(ctx, c, task))
		return failure(fmt.Sprintf("task %s has not ended after %s%s; tasker-ctl task watch %s follows it", id, wait, why, id))
	}
	a.showOutcome(ctx, c, task)
	return a.outcome(ctx, c, task)
}

// explainCreate adds what can be done about a refused creation.
func explainCreate(err error) error {
	var answer *client.Error
	if !errors.As(err, &answer) {
		return err
	}
	switch {
	case client.IsNotFound(err):
		return hinted{err, "tasker-ctl template list shows what there is"}
	case client.IsConflict(err) && answer.TaskUUID != "":
		return hinted{err, "it is task " + answer.TaskUUID}
	case client.IsConflict(err):
		return hinted{err, "the same template and input count as the same task; change the input or give an --idempotency-key"}
	}
	return err
}

// awaitEnd returns the task when it has ended, or as it is after the limit.
func (a *app) awaitEnd(ctx context.Context, c *api, id string, limit time.Duration) (*client.Task, error) {
	p := poll{app: a, client: c, task: id}
	end := a.now().Add(limit)
	for {
		left := end.Sub(a.now())
		task, err := p.next(ctx, min(max(left, 0), longestWait))
		if err != nil || task.Terminal() || !a.now().Before(end) {
			return task, err
		}
	}
}

const (
	// importTasks and importBytes bound one call.
	importTasks = 1000
	importBytes = 4 << 20
	// importFailures is how many failures are listed; all are counted.
	importFailures = 1000
)

// importOutcome is what became of the lines of a file.
type importOutcome struct {
	Created  int             `json:"created"`
	Failed   int             `json:"failed"`
	Failures []importFailure `json:"failures"`
	others   int             // failures other than conflicts
}

type importFailure struct {
	Line     int    `json:"line"`
	Code     string `json:"code"`
	Message  string `json:"message"`
	TaskUUID string `json:"task_uuid,omitempty"`
}

func (a *app) taskImport() command {
	return command{
		use: "import FILE", short: "Create a task from each line of a file",
		long: `Creates a task from each line of FILE, or of stdin where FILE is -. A line is a
JSON object with the keys that POST /v1/tasks takes: name, namespace, version and
context, and perhaps priority, tags, idempotency_key and the others.

A faulty line (not JSON, too long or refused) does not affect the others; failed
lines are listed. The exit code is 4 when all failed tasks exist already, so that
an import may be repeated, and 1 when others failed as well. When the server
cannot be reached or is overloaded the import stops and names the line to
continue from.`,
		example: "  tasker-ctl task import tasks.jsonl\n" +
			"  jq -c '{name: \"import\", namespace: \"shop\", version: \"1.0.0\", context: .}' products.json | tasker-ctl task import -",
		run: func(ctx context.Context, c *api, args []string) error {
			if args[0] == "-" {
				return a.importTasks(ctx, c, a.stdin, 0)
			}
			file, err := os.Open(args[0])
			if err != nil {
				return usageError{fmt.Errorf("read the tasks: %w", err)}
			}
			defer func() { _ = file.Close() }() // only read
			info, err := file.Stat()
			if err != nil {
				return fmt.Errorf("read the tasks: %w", err)
			}
			return a.importTasks(ctx, c, file, info.Size())
		},
	}
}

// importTasks reads a text of so many bytes; 0: that is not known.
func (a *app) importTasks(ctx context.Context, c *api, from io.Reader, size int64) error {
	outcome := importOutcome{Failures: []importFailure{}}
	text, bar := &countingReader{Reader: from}, progress{app: a, noun: "task", total: size}
	err := eachBatch(text, outcome.fail, func(tasks []client.TaskRequest, lines []int) error {
		err := createLines(ctx, c, tasks, lines, &outcome)
		bar.at(text.n, outcome.Created+outcome.Failed)
		return err
	})
	bar.end()
	slices.SortStableFunc(outcome.Failures, func(x, y importFailure) int { return x.Line - y.Line })
	if shown := a.emit(outcome, func() { a.showImport(&outcome) }); shown != nil {
		return shown
	}
	switch {
	case err != nil:
		return err
	case outcome.others > 0:
		return failure(counted(outcome.Failed, "task") + " not created")
	case outcome.Failed > 0:
		return coded{failure(counted(outcome.Failed, "task") + " not created, since such tasks exist already"), exitConflict}
	}
	return nil
}

// createLines creates the tasks of some lines. A batch that is refused as a
// whole is divided, so that only the lines that cause it fail.
func createLines(ctx context.Context, c *api, tasks []client.TaskRequest, lines []int, outcome *importOutcome) error {
	batch, err := c.CreateTasks(ctx, tasks)
	var answer *client.Error
	switch {
	case err == nil:
		outcome.add(batch, lines)
		return nil
	case !errors.As(err, &answer) || exitCodeOfStatus(answer.Status) != exitUsage:
		return fmt.Errorf("create the tasks from line %d on: %w", lines[0], err)
	case len(tasks) == 1:
		outcome.fail(importFailure{Line: lines[0], Code: answer.Code, Message: answer.Message})
		return nil
	}
	half := len(tasks) / 2
	if err := createLines(ctx, c, tasks[:half], lines[:half], outcome); err != nil {
		return err
	}
	return createLines(ctx, c, tasks[half:], lines[half:], outcome)
}

func (o *importOutcome) add(batch *client.TaskBatch, lines []int) {
	o.Created += batch.Created
	for _, r := range batch.Results {
		if r.Error != nil && r.Index >= 0 && r.Index < len(lines) {
			o.fail(importFailure{Line: lines[r.Index], Code: r.Error.Code, Message: r.Error.Message, TaskUUID: r.Error.TaskUUID})
		}
	}
}

func (o *importOutcome) fail(f importFailure) {
	o.Failed++
	if f.Code != "CONFLICT" {
		o.others++
	}
	if len(o.Failures) < importFailures {
		o.Failures = append(o.Failures, f)
	}
}

func (a *app) showImport(o *importOutcome) {
	for _, f := range o.Failures {
		a.printf("line %d: %s (%s)\n", f.Line, oneLine(f.Message), oneLine(f.Code))
	}
	if more := o.Failed - len(o.Failures); more > 0 {
		a.printf("and %d more\n", more)
	}
	a.printf("created %s\n", counted(o.Created, "task"))
}

// invalidLine is the code of a line that no server has seen.
const invalidLine = "INVALID_LINE"

// eachBatch reads tasks line by line and hands them over in bounded numbers,
// with the lines they stood in. Lines that are no tasks go to fail.
func eachBatch(from io.Reader, fail func(importFailure), create func(tasks []client.TaskRequest, lines []int) error) error {
	reader := bufio.NewReader(from)
	var tasks []client.TaskRequest
	var lines []int
	size := 0
	for line := 1; ; line++ {
		text, long, err := readLine(reader)
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the tasks: line %d: %w", line, err)
		}
		task := client.TaskRequest{Initiator: "tasker-ctl", SourceSystem: "cli", Reason: defaultReason}
		switch text = bytes.TrimSpace(text); {
		case long:
			fail(importFailure{Line: line, Code: invalidLine, Message: fmt.Sprintf("the line is larger than %d bytes", maxInput)})
		case len(text) == 0:
		case json.Unmarshal(text, &task) != nil:
			fail(importFailure{Line: line, Code: invalidLine, Message: "the line is not a task: " + json.Unmarshal(text, &task).Error()})
		default:
			if len(tasks) == importTasks || size+len(text) > importBytes && size > 0 {
				if err := create(tasks, lines); err != nil {
					return err
				}
				tasks, lines, size = tasks[:0], lines[:0], 0
			}
			tasks, lines, size = append(tasks, task), append(lines, line), size+len(text)
		}
		if err != nil { // the end
			if len(tasks) == 0 {
				return nil
			}
			return create(tasks, lines)
		}
	}
}

// readLine reads to the end of a line; long tells that it had more than
// maxInput bytes, which are dropped. The error is io.EOF with the last line.
func readLine(from *bufio.Reader) (text []byte, long bool, err error) {
	for {
		piece, err := from.ReadSlice('\n')
		if long = long || len(text)+len(piece) > maxInput; long {
			text = nil
		} else {
			text = append(text, piece...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, long, err
		}
	}
}
