package main

import (
	"context"
	"fmt"

	"github.com/tasker-go/tasker/client"
)

// maxLines bounds the lines that the command lists at once.
const maxLines = 100_000

// linesPerPage is how many are asked for at once.
const linesPerPage = 1_000

func (a *app) taskLogs() command {
	var o client.LogOptions
	follow, most := false, 1_000
	return command{
		use: "logs TASK", short: "Show what the handlers of a task have logged",
		long: `Shows the lines that handlers have written with the logger of their context, the
oldest first. Of an attempt the first and the last are kept; what was dropped
between them is counted. With --follow the lines that come go on until the task
has ended. With -o json or yaml each line is one document.`,
		example: "  tasker-ctl task logs 019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10 --step charge --level error\n" +
			"  tasker-ctl task logs 019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10 --follow",
		flags: all(
			opt(&follow, "follow,f", "go on with the lines that come, until the task has ended"),
			opt(&o.Step, "step", "only of the step with this name"),
			opt(&o.Attempt, "attempt", "only of the attempts with this number", atLeastOne),
			opt(&o.Level, "level", "only from this level on", among("debug", "info", "warn", "error")),
			opt(&o.Text, "grep", "only with this in their text, in whatever case"),
			limit(&most, maxLines, "how many, the oldest first"),
		),
		either: [][2]string{{"follow", "limit"}},
		run: func(ctx context.Context, c *api, args []string) error {
			if follow {
				for l, err := range c.FollowTaskLogs(ctx, args[0], o) {
					if err != nil {
						return err
					}
					if err := a.logLine(l); err != nil {
						return err
					}
				}
				return nil
			}
			return a.listLogs(ctx, c, args[0], o, most)
		},
	}
}

// listLogs shows lines page by page.
func (a *app) listLogs(ctx context.Context, c *api, task string, o client.LogOptions, most int) error {
	for shown, unreadable := 0, 0; ; {
		o.Limit = min(most-shown, linesPerPage)
		page, err := c.TaskLogs(ctx, task, o)
		if err != nil {
			return err
		}
		for i := range page.Lines {
			if err := a.logLine(&page.Lines[i]); err != nil {
				return err
			}
		}
		shown, unreadable, o.After = shown+len(page.Lines), unreadable+page.Unreadable, page.Next
		switch {
		case o.After != "" && shown < most:
			continue
		case o.After != "":
			a.warnf("there are more lines; see them with --limit, --step or --grep")
		case shown == 0 && a.global.output == formatTable:
			a.printf("no lines\n")
		}
		if unreadable > 0 {
			a.warnf("%s of lines cannot be read and were left out", counted(unreadable, "chunk"))
		}
		return nil
	}
}

// logLine shows one line.
func (a *app) logLine(l *client.LogLine) error {
	if a.global.output == formatYAML {
		a.printf("---\n")
	}
	if a.global.output != formatTable {
		return a.line(l)
	}
	if l.DroppedBefore > 0 {
		a.printf("%s\n", a.screen.paint(dim, fmt.Sprintf("… %s of %s, attempt %d, were not kept", counted(int(l.DroppedBefore), "line"), oneLine(l.StepName), l.Attempt)))
	}
	fields := ""
	if len(l.Fields) > 0 {
		fields = "  " + a.screen.paint(dim, oneLine(string(l.Fields)))
	}
	a.printf("%s  %s  %s#%d  %s%s\n", l.At.UTC().Format("2006-01-02 15:04:05.000Z"), a.screen.paint(levelStyle(l.Level), fmt.Sprintf("%-5s", l.Level)),
		oneLine(l.StepName), l.Attempt, oneLine(l.Text), fields)
	return nil
}

func levelStyle(level string) style {
	switch level {
	case "error":
		return red
	case "warn":
		return yellow
	}
	return plain
}
