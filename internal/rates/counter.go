package rates

import (
	"sync"
	"time"

	"github.com/tasker-go/tasker/workflow"
)

// Attempt is an ended execution of a step.
type Attempt struct {
	Callable, Plan int32
	Step           int // of the plan
	Outcome        workflow.AttemptOutcome
	Enqueued       time.Time // zero: unknown, as of the first step of some tasks
	Claimed        time.Time
	Reported       time.Time // zero: it was lost, or called off
	Applied        time.Time // as in the ledger: it says the minute
}

// End is the end of a task.
type End struct {
	Plan             int32
	State            workflow.TaskState
	Requested, Ended time.Time
}

// CallKey is what attempts are counted by.
type CallKey struct {
	Callable, Plan int32
	Step           int
	Outcome        workflow.AttemptOutcome
	Minute         int64 // since 1970
}

// Call counts the attempts of a minute.
type Call struct {
	CallKey
	Count            int64
	Waiting, Running Histogram // of those for which both times are known
	WaitingMS        int64     // in all
	RunningMS        int64
	LongestMS        int64 // that one ran
}

// TaskKey is what ends of tasks are counted by.
type TaskKey struct {
	Plan   int32
	State  workflow.TaskState
	Minute int64 // since 1970
}

// Task counts the ends of a minute.
type Task struct {
	TaskKey
	Count int64
	MS    int64 // from the requests to the ends, in all
	// LongestMS is the longest of these times.
	LongestMS int64
}

// Counter gathers what a process has recorded. It keeps up to a number of keys; what comes under a
// further one is dropped. It is safe for concurrent use; a nil Counter counts nothing.
type Counter struct {
	limit int

	mu      sync.Mutex
	calls   map[CallKey]*Call
	tasks   map[TaskKey]*Task
	dropped int64
}

// NewCounter returns a counter of up to limit keys, at least 1.
func NewCounter(limit int) *Counter {
	return &Counter{limit: limit, calls: map[CallKey]*Call{}, tasks: map[TaskKey]*Task{}}
}

// Count counts attempts and ends of tasks, whose transaction is committed.
func (c *Counter) Count(attempts []Attempt, ends []End) {
	if c == nil || len(attempts)+len(ends) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var latest *Call // batches are mostly of one kind
	for i := range attempts {
		a := &attempts[i]
		key := CallKey{a.Callable, a.Plan, a.Step, a.Outcome, minute(a.Applied)}
		if latest == nil || latest.CallKey != key {
			if latest = c.call(key); latest == nil {
				c.dropped++
				continue
			}
		}
		latest.add(a)
	}
	for _, e := range ends {
		if t := c.task(TaskKey{e.Plan, e.State, minute(e.Ended)}); t != nil {
			ms := milliseconds(e.Ended.Sub(e.Requested))
			t.Count++
			t.MS += ms
			t.LongestMS = max(t.LongestMS, ms)
		} else {
			c.dropped++
		}
	}
}

// call returns the count of a key; nil where there is no room for it.
func (c *Counter) call(key CallKey) *Call {
	call, known := c.calls[key]
	if !known && c.room() {
		call = &Call{CallKey: key}
		c.calls[key] = call
	}
	return call
}

func (c *Counter) task(key TaskKey) *Task {
	task, known := c.tasks[key]
	if !known && c.room() {
		task = &Task{TaskKey: key}
		c.tasks[key] = task
	}
	return task
}

func (c *Counter) room() bool { return len(c.calls)+len(c.tasks) < c.limit }

func (call *Call) add(a *Attempt) {
	call.Count++
	if !a.Enqueued.IsZero() && !a.Claimed.IsZero() {
		d := a.Claimed.Sub(a.Enqueued)
		call.Waiting[BucketOf(d)]++
		call.WaitingMS += milliseconds(d)
	}
	if !a.Claimed.IsZero() && !a.Reported.IsZero() {
		d := a.Reported.Sub(a.Claimed)
		call.Running[BucketOf(d)]++
		call.RunningMS += milliseconds(d)
		call.LongestMS = max(call.LongestMS, milliseconds(d))
	}
}

// Take returns what is gathered, and forgets it. The caller writes it, or gives it back.
func (c *Counter) Take() ([]Call, []Task) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var calls []Call
	for _, call := range c.calls {
		calls = append(calls, *call)
	}
	var tasks []Task
	for _, task := range c.tasks {
		tasks = append(tasks, *task)
	}
	clear(c.calls)
	clear(c.tasks)
	return calls, tasks
}

// Return gives back what could not be written.
func (c *Counter) Return(calls []Call, tasks []Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range calls {
		from := &calls[i]
		to := c.call(from.CallKey)
		if to == nil {
			c.dropped += from.Count
			continue
		}
		to.Count += from.Count
		to.Waiting.Add(&from.Waiting)
		to.Running.Add(&from.Running)
		to.WaitingMS += from.WaitingMS
		to.RunningMS += from.RunningMS
		to.LongestMS = max(to.LongestMS, from.LongestMS)
	}
	for _, from := range tasks {
		if to := c.task(from.TaskKey); to != nil {
			to.Count += from.Count
			to.MS += from.MS
			to.LongestMS = max(to.LongestMS, from.LongestMS)
		} else {
			c.dropped += from.Count
		}
	}
}

// Drop counts what is lost.
func (c *Counter) Drop(calls []Call, tasks []Task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range calls {
		c.dropped += calls[i].Count
	}
	for i := range tasks {
		c.dropped += tasks[i].Count
	}
}

// TakeDropped returns how many attempts and ends were not counted, for lack of room, or were lost, since the last call.
func (c *Counter) TakeDropped() (n int64) {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.dropped = c.dropped, 0
	return n
}

func minute(at time.Time) int64 { return at.Unix() / 60 }

// milliseconds rounds to the nearest; a negative duration counts as 0.
func milliseconds(d time.Duration) int64 { return max(d, 0).Round(time.Millisecond).Milliseconds() }
