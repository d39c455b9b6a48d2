package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// LogLine is a line that a handler has logged.
type LogLine struct {
	At       time.Time       `json:"at" format:"date-time" doc:"By the clock of the worker"`
	Level    string          `json:"level" doc:"debug, info, warn or error"`
	Text     string          `json:"text"`
	Fields   json.RawMessage `json:"fields,omitempty" doc:"An object"`
	StepName string          `json:"step_name"`
	StepNo   int             `json:"step_no"`
	Attempt  int             `json:"attempt"`
	Token    int64           `json:"token" doc:"Of the claim: two executions of an attempt differ in it, of which the first was lost"`
	Line     int64           `json:"line" doc:"Its number in the execution, from 0 on"`
	// DroppedBefore counts the lines of the attempt between the one before and this one that are not kept.
	DroppedBefore int64 `json:"dropped_before,omitempty"`
}

// LogPage are some lines of a task, the oldest first.
type LogPage struct {
	Lines []LogLine `json:"lines"`
	Next  string    `json:"next,omitempty" doc:"There may be more lines: after leads to them. A page may be short, or empty, though there are"`
	// Unreadable counts the chunks of lines that are damaged and left out.
	Unreadable int `json:"unreadable,omitempty"`
}

// LogOptions select lines of a task; the zero value selects all.
type LogOptions struct {
	Step    string // name of a step
	Attempt int    // number of an attempt
	Level   string // the least level
	Text    string // in the text of the line, in whatever case
	After   string // LogPage.Next
	Limit   int    // lines of a page
	// LastEventID continues a stream after lines with this ID.
	LastEventID string
}

func (o *LogOptions) query() parameters {
	return parameters{"step": o.Step, "level": o.Level, "text": o.Text, "after": o.After, "attempt": o.Attempt, "limit": o.Limit}
}

// TaskLogs returns lines that the handlers of a task have logged.
func (c *Client) TaskLogs(ctx context.Context, task string, o LogOptions) (*LogPage, error) {
	return get[LogPage](ctx, c, o.query(), "v1", "tasks", task, "logs")
}

// logsEnd is the last event of a stream of lines: the task has ended.
const logsEnd = "end"

// FollowTaskLogs returns the lines of a task and goes on with those that follow, until the task has
// ended. It continues where it was if the connection breaks. After an error, which a retry would not
// fix, it ends. o.After and o.Limit are ignored.
func (c *Client) FollowTaskLogs(ctx context.Context, task string, o LogOptions) iter.Seq2[*LogLine, error] {
	o.After, o.Limit = "", 0
	return func(yield func(*LogLine, error) bool) {
		err := resumed(ctx, &o.LastEventID, func() error {
			return c.serverSent(ctx, o.query(), []string{"v1", "tasks", task, "logs", "stream"}, o.LastEventID, func(e *serverSent) error {
				if e.name == logsEnd {
					return &handledError{}
				}
				if len(e.data) > 0 && e.name == "lines" {
					var page LogPage
					if err := json.Unmarshal(e.data, &page); err != nil {
						return fmt.Errorf("decode lines: %w", err)
					}
					for i := range page.Lines {
						if !yield(&page.Lines[i], nil) {
							return &handledError{}
						}
					}
				}
				if e.id != "" {
					o.LastEventID = e.id
				}
				return nil
			})
		})
		if err != nil {
			yield(nil, err)
		}
	}
}
