package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/tasker-go/tasker/client"
)

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
				return a.importTasks(ctx, c, a.stdin)
			}
			file, err := os.Open(args[0])
			if err != nil {
				return usageError{fmt.Errorf("read the tasks: %w", err)}
			}
			defer func() { _ = file.Close() }() // only read
			return a.importTasks(ctx, c, file)
		},
	}
}

func (a *app) importTasks(ctx context.Context, c *api, from io.Reader) error {
	outcome := importOutcome{Failures: []importFailure{}}
	err := eachBatch(from, outcome.fail, func(tasks []client.TaskRequest, lines []int) error {
		return createLines(ctx, c, tasks, lines, &outcome)
	})
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
	var told *client.Error
	switch {
	case err == nil:
		outcome.add(batch, lines)
		return nil
	case !errors.As(err, &told) || exitCodeOfStatus(told.Status) != exitUsage:
		return fmt.Errorf("create the tasks from line %d on: %w", lines[0], err)
	case len(tasks) == 1:
		outcome.fail(importFailure{Line: lines[0], Code: told.Code, Message: told.Message})
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
			fail(importFailure{Line: line, Code: invalidLine, Message: "the line is no task: " + json.Unmarshal(text, &task).Error()})
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
// maxInput bytes, which are gone. The error is io.EOF with the last line.
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
