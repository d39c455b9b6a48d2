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

	"github.com/spf13/cobra"

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

func newTaskImportCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Create a task from each line of a file",
		Long: `Creates a task from each line of FILE, or of stdin where FILE is -. A line is a
JSON object with the keys that POST /v1/tasks takes: name, namespace, version and
context, and perhaps priority, tags, idempotency_key and the others.

What is wrong with one line costs no other its task; the lines that failed are
listed. The exit code is 4 when all that failed exist already, so that an import
may be repeated, and 1 when others failed as well.`,
		Example: "  tasker-ctl task import tasks.jsonl\n" +
			"  jq -c '{name: \"import\", namespace: \"shop\", version: \"1.0.0\", context: .}' products.json | tasker-ctl task import -",
		Args: arguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from := a.stdin
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return usageError{fmt.Errorf("read the tasks: %w", err)}
				}
				defer func() { _ = file.Close() }() // only read
				from = file
			}
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			return unreachable(orchestrator, a.importTasks(cmd.Context(), c, from))
		},
	}
}

func (a *app) importTasks(ctx context.Context, c *client.Client, from io.Reader) error {
	outcome := importOutcome{Failures: []importFailure{}}
	err := eachBatch(from, func(tasks []client.TaskRequest, lines []int) error {
		batch, err := c.CreateTasks(ctx, tasks)
		if err != nil {
			return fmt.Errorf("create the tasks from line %d on: %w", lines[0], err)
		}
		outcome.add(batch, lines)
		return nil
	})
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

func (o *importOutcome) add(batch *client.TaskBatch, lines []int) {
	o.Created += batch.Created
	o.Failed += batch.Failed
	for _, r := range batch.Results {
		if r.Error == nil || r.Index < 0 || r.Index >= len(lines) {
			continue
		}
		if r.Error.Code != "CONFLICT" {
			o.others++
		}
		if len(o.Failures) < importFailures {
			o.Failures = append(o.Failures, importFailure{Line: lines[r.Index], Code: r.Error.Code, Message: r.Error.Message, TaskUUID: r.Error.TaskUUID})
		}
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

// eachBatch reads tasks line by line and hands them over in bounded numbers,
// with the lines they stood in.
func eachBatch(from io.Reader, create func(tasks []client.TaskRequest, lines []int) error) error {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, maxInput)
	var tasks []client.TaskRequest
	var lines []int
	size := 0
	line := 0
	for scanner.Scan() {
		line++
		text := bytes.TrimSpace(scanner.Bytes())
		if len(text) == 0 {
			continue
		}
		if len(tasks) == importTasks || size+len(text) > importBytes && size > 0 {
			if err := create(tasks, lines); err != nil {
				return err
			}
			tasks, lines, size = tasks[:0], lines[:0], 0
		}
		task := client.TaskRequest{Initiator: "tasker-ctl", SourceSystem: "cli", Reason: defaultReason}
		if err := json.Unmarshal(text, &task); err != nil {
			return usagef("line %d is no task: %v", line, err)
		}
		tasks, lines, size = append(tasks, task), append(lines, line), size+len(text)
	}
	switch err := scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return usagef("line %d is larger than %d bytes", line+1, maxInput)
	case err != nil:
		return fmt.Errorf("read the tasks: %w", err)
	case len(tasks) == 0:
		return nil
	}
	return create(tasks, lines)
}
