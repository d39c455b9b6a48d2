package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// What a stream of transitions tells beside.
const (
	// TransitionOpen: the stream is open; all transitions from now on are part of it.
	TransitionOpen = "open"
	// TransitionSnapshot: the task of the stream as it was after the stream was opened.
	TransitionSnapshot = "snapshot"
	// TransitionReset, TransitionOverflow: transitions were missed.
	TransitionReset    = "reset"
	TransitionOverflow = "overflow"
)

// Transition is the end of an attempt, or a change of a task.
type Transition struct {
	Event     string    `json:"-"` // step: an attempt has ended; task: a task was created, or its state has changed; or a constant above
	ID        string    `json:"-"` // the place to continue from after it; "": the one before
	Task      *Task     `json:"-"` // of a snapshot
	TaskUUID  string    `json:"task_uuid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Step      string    `json:"step,omitempty"`
	StepNo    *int      `json:"step_no,omitempty"`
	Attempt   int       `json:"attempt,omitempty"`
	Outcome   string    `json:"outcome,omitempty"`
	From      string    `json:"from,omitempty"`
	State     string    `json:"state,omitempty"`
	At        time.Time `json:"at"`
}

// TransitionOptions say what to follow: a task, a namespace, or all tasks.
type TransitionOptions struct {
	TaskUUID, Namespace string
	// LastEventID continues after a transition with this ID.
	LastEventID string
}

// Transitions follows transitions of tasks. It continues where it was if the connection
// breaks or the server ends it; then some may come again. Those of a task end with it.
// After an error, which a retry would not fix, it ends.
func (c *Client) Transitions(ctx context.Context, o TransitionOptions) iter.Seq2[*Transition, error] {
	return func(yield func(*Transition, error) bool) {
		err := resumed(ctx, &o.LastEventID, func() error {
			return c.transitions(ctx, &o, func(t *Transition) error {
				if !yield(t, nil) || o.TaskUUID != "" && t.ends() {
					return &handledError{}
				}
				return nil
			})
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// ends reports whether it is the last of its task.
func (t *Transition) ends() bool {
	state := t.State
	if t.Event == TransitionSnapshot && t.Task != nil {
		state = t.Task.Status
	}
	return (&Task{Status: state}).Terminal()
}

// transitions follows one connection to its end.
func (c *Client) transitions(ctx context.Context, o *TransitionOptions, handle func(*Transition) error) error {
	q := parameters{"namespace": o.Namespace, "task_uuid": o.TaskUUID}
	return c.serverSent(ctx, q, []string{"v1", "transitions", "stream"}, o.LastEventID, func(e *serverSent) error {
		if e.id != "" {
			o.LastEventID = e.id
		}
		if len(e.data) == 0 {
			return nil
		}
		t := Transition{Event: e.name, ID: e.id}
		into := any(&t)
		if e.name == TransitionSnapshot {
			t.Task = &Task{}
			into = t.Task
		}
		if err := json.Unmarshal(e.data, into); err != nil {
			return fmt.Errorf("decode a transition: %w", err)
		}
		return handle(&t)
	})
}

// serverSent is an event of a stream.
type serverSent struct {
	id, name string
	data     []byte // valid until the next one
}

// serverSent reads a stream until it ends, or with an error of handle.
func (c *Client) serverSent(ctx context.Context, q parameters, path []string, last string, handle func(e *serverSent) error) error {
	over, ok := c.transport.(*rest)
	if !ok {
		return fmt.Errorf("%w; REST serves GET /%s", ErrNotServed, strings.Join(path, "/"))
	}
	header := http.Header{"Accept": {"text/event-stream"}}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	resp, err := over.send(ctx, http.MethodGet, path, q.values(), nil, header)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxStreamed)
	if resp.StatusCode != http.StatusOK {
		lines.Scan()
		return newError(resp.StatusCode, resp.Header, lines.Bytes())
	}
	e := serverSent{}
	for lines.Scan() {
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(field) {
		case "id":
			e.id = string(value)
		case "event":
			e.name = string(value)
		case "data":
			e.data = append(e.data[:0], value...)
		case "":
			if len(lines.Bytes()) > 0 {
				continue // a comment
			}
			if err := handle(&e); err != nil {
				return err
			}
			e.id, e.name, e.data = "", "", e.data[:0]
		}
	}
	if err := lines.Err(); err != nil {
		return unread(err)
	}
	return nil
}
