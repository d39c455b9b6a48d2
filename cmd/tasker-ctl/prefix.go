package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
)

const (
	// leastDigits is how much of a UUID has to be given at least.
	leastDigits = 4
	// uuidDigits is how many a UUID has.
	uuidDigits = 32
	// mostLikely is how many of several UUIDs with the same beginning an error names.
	mostLikely = 3
	// tasksPerPage is how many tasks the server lists at once.
	tasksPerPage = 100
	// mostScanned bounds the tasks that are looked through where the server cannot search.
	mostScanned = 1000
)

// uuidOrPrefix reads a UUID, or its beginning as lower-case digits without hyphens.
func uuidOrPrefix(what, text string) (string, error) {
	if id, err := uuid.Parse(text); err == nil {
		return id.String(), nil
	}
	digits := prefixDigits(text)
	if len(digits) < leastDigits || len(digits) >= uuidDigits {
		return "", invalid(what, text, fmt.Sprintf("a UUID, or at least its first %d digits", leastDigits))
	}
	return digits, nil
}

// prefixDigits are the digits of the beginning of a UUID; empty: it is none.
func prefixDigits(text string) string {
	digits := strings.ToLower(strings.ReplaceAll(text, "-", ""))
	if strings.Trim(digits, "0123456789abcdef") != "" {
		return ""
	}
	return digits
}

// isWhole reports whether what uuidOrPrefix returned is a whole UUID.
func isWhole(id string) bool { return len(id) > uuidDigits }

// beginsWith reports whether a UUID begins with digits.
func beginsWith(id, digits string) bool {
	return strings.HasPrefix(strings.ReplaceAll(id, "-", ""), digits)
}

// uniqueOf returns the UUID that begins with digits, where there is one of a kind. The hint
// says where the others are listed.
func uniqueOf(what, digits, hint string, ids []string) (string, error) {
	var matches []string
	for _, id := range ids {
		if beginsWith(id, digits) && !slices.Contains(matches, id) {
			matches = append(matches, id)
		}
	}
	switch len(matches) {
	case 0:
		return "", hinted{coded{usagef("there is no %s %s…", what, digits), exitNotFound}, hint}
	case 1:
		return matches[0], nil
	}
	named := strings.Join(matches[:min(len(matches), mostLikely)], ", ")
	if len(matches) > mostLikely {
		named += " and others"
	}
	return "", hinted{usagef("the %s %s… is ambiguous: %s", what, digits, named), "give more of its digits"}
}

// amongListed makes what finds a UUID by its beginning among those that a query lists.
func amongListed(what, hint string, list query[[]string]) func(context.Context, *api, []string, string) (string, error) {
	return func(ctx context.Context, c *api, before []string, text string) (string, error) {
		if isWhole(text) {
			return text, nil
		}
		ids, err := list(ctx, c, append(slices.Clone(before), text))
		if err != nil {
			return "", err
		}
		return uniqueOf(what, text, hint, ids)
	}
}

// tasksFrom lists the newest tasks whose UUIDs begin with digits, up to one page. The
// cursor of a list of tasks is a UUID, so the database finds them by its index.
func tasksFrom(ctx context.Context, c *api, digits string, most int) (tasks []client.Task, err error) {
	o := client.TaskListOptions{PerPage: most, Cursor: client.NewestTasks}
	if digits != "" {
		o.Cursor = lastOf(digits)
	}
	list, err := c.Tasks(ctx, o)
	answer, refused := errors.AsType[*client.Error](err)
	switch {
	case refused && digits != "" && answer.Status == http.StatusBadRequest:
		return scanTasks(ctx, c, digits, most) // gRPC has other cursors
	case err != nil:
		return nil, err
	}
	for i := range list.Tasks {
		if beginsWith(list.Tasks[i].TaskUUID, digits) {
			tasks = append(tasks, list.Tasks[i])
		}
	}
	return tasks, nil
}

// lastOf is the last UUID that begins with digits.
func lastOf(digits string) string {
	raw, err := hex.DecodeString(digits + strings.Repeat("f", uuidDigits-len(digits)))
	if err != nil {
		return uuid.Max.String() // no beginning of a UUID
	}
	return uuid.UUID(raw).String()
}

// scanTasks looks for digits through the newest tasks.
func scanTasks(ctx context.Context, c *api, digits string, most int) ([]client.Task, error) {
	var tasks []client.Task
	seen := 0
	for task, err := range c.EachTask(ctx, client.TaskListOptions{PerPage: tasksPerPage}) {
		if err != nil {
			return nil, err
		}
		if beginsWith(task.TaskUUID, digits) {
			tasks = append(tasks, *task)
		}
		if seen++; seen == mostScanned || len(tasks) == most {
			break
		}
	}
	return tasks, nil
}

// taskIDs lists the UUIDs of tasks that begin with the last argument.
func taskIDs(ctx context.Context, c *api, args []string) ([]string, error) {
	tasks, err := tasksFrom(ctx, c, args[len(args)-1], mostLikely+1)
	return namesOf(tasks, func(t *client.Task) string { return t.TaskUUID }), err
}

// findTask finds a task by its UUID, or by the beginning of that.
var findTask = amongListed("task", "tasker-ctl task list shows what there is", taskIDs)

// taskArgument is a task, completed with the newest ones.
var taskArgument = argument{
	parse: func(text string) (string, error) { return uuidOrPrefix("task", text) },
	find:  findTask,
	offer: offerTasks,
}

// offerTasks completes the beginning of a UUID, which is the last argument, with tasks.
func offerTasks(ctx context.Context, c *api, args []string) ([]string, error) {
	text := args[len(args)-1]
	digits := prefixDigits(text)
	if text != "" && digits == "" {
		return nil, nil
	}
	tasks, err := tasksFrom(ctx, c, digits, tasksPerPage)
	return namesOf(tasks, func(t *client.Task) string {
		return described(t.TaskUUID, templateName(t)+" "+t.Status)
	}), err
}

// described is a word of a completion with what it stands for.
func described(word, about string) string { return word + "\t" + oneLine(about) }
