package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/aside"
	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
)

// Logs says what of the logs of handlers is kept.
type Logs struct {
	attemptlog.Bounds
	From   attemptlog.Level      // lines below it are not kept
	Hidden *attemptlog.Redaction // nil: nothing is kept
}

// AttemptLog is the log of an attempt.
type AttemptLog = attemptlog.Log[store.LogOf]

const (
	// logPause is the least time between two rounds of writing: what ends in the meantime shares one.
	logPause = 100 * time.Millisecond
	// logsAtOnce bounds the attempts of which one statement has lines, and maxLogBytes their bytes.
	logsAtOnce  = 500
	maxLogBytes = 1 << 20
	// logPatience bounds the writing of logs as the worker stops.
	logPatience = 3 * time.Second
)

// logs writes what handlers log and how far they are, beside everything else: handlers, reports and
// heartbeats never wait for it. While the database does not answer, the middle of the lines is
// dropped and counted.
type logs struct {
	e      *Engine
	memory *attemptlog.Memory[store.LogOf] // nil: nothing is kept
	wake   chan struct{}                   // capacity 1
	told   int64                           // dropped lines that the metric has; used by one round at a time

	mu    sync.Mutex
	said  []*Execution // with progress that is not written
	since time.Time    // of the first of them

	round chan struct{} // capacity 1: held while lines are written
}

func newLogs(e *Engine) *logs {
	l := &logs{e: e, wake: make(chan struct{}, 1), round: make(chan struct{}, 1)}
	if e.cfg.Logs.Hidden != nil {
		l.memory = attemptlog.NewMemory[store.LogOf](e.cfg.Logs.Bounds, func() { lifecycle.Nudge(l.wake) })
	}
	return l
}

// keepsLogs is false for an execution of a test or a rehearsal.
func (x *Execution) keepsLogs() bool { return x.engine != nil && x.engine.logs.memory != nil }

// Log returns the log of the attempt, which its executions share; nil: logs are not kept.
func (x *Execution) Log() *AttemptLog {
	if !x.keepsLogs() {
		return nil
	}
	if l := x.log.Load(); l != nil {
		return l
	}
	x.log.CompareAndSwap(nil, x.engine.logs.memory.NewLog(x.logOf()))
	return x.log.Load()
}

// logOf is the attempt that lines and progress of the execution are of.
func (x *Execution) logOf() store.LogOf {
	return store.LogOf{Task: x.Key.TaskUUID, Step: x.Key.Step, Token: x.Key.Token, Attempt: x.Claim.Attempt}
}

// Tee returns a logger whose lines are also kept.
func (x *Execution) Tee(logger *zap.Logger) *zap.Logger {
	if !x.keepsLogs() {
		return logger
	}
	c := &x.engine.cfg.Logs
	return attemptlog.Tee(logger, x.Log(), c.From, c.Hidden)
}

// KeepLine keeps a line, unless its level is too low. Fields that are no JSON object are left out.
func (x *Execution) KeepLine(at time.Time, level attemptlog.Level, text string, fields json.RawMessage) {
	if !x.keepsLogs() || level < x.engine.cfg.Logs.From {
		return
	}
	l, c := x.Log(), &x.engine.cfg.Logs
	var compact bytes.Buffer
	if len(fields) > 0 && fields[0] == '{' && json.Compact(&compact, fields) == nil {
		fields = c.Hidden.JSON(compact.Bytes())
	} else {
		fields = nil
	}
	l.Add(at, level, text, fields)
}

// Say keeps progress, and reports whether to log it.
func (x *Execution) Say(fraction float64, message string) bool {
	log := x.Progress.Set(fraction, message)
	if x.keepsLogs() && !x.unsaid.Swap(true) {
		l := x.engine.logs
		l.mu.Lock()
		if len(l.said) == 0 {
			l.since = time.Now()
		}
		l.said = append(l.said, x)
		l.mu.Unlock()
		lifecycle.Nudge(l.wake)
	}
	return log
}

// endLog has the lines of an attempt that ends written at once.
func (x *Execution) endLog() {
	if l := x.log.Load(); l != nil {
		l.End()
	}
}

// run writes lines until ctx ends.
func (l *logs) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var begun time.Time
	for {
		next := l.due(time.Now())
		if next >= 0 {
			timer.Reset(max(next, logPause-time.Since(begun)))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
			continue
		case <-timer.C:
		}
		if next < 0 {
			continue
		}
		begun = time.Now()
		if err := l.write(ctx, false); err != nil {
			return err
		}
	}
}

// due returns after which time there is something to write; negative: there is nothing.
func (l *logs) due(now time.Time) time.Duration {
	if l.memory == nil {
		return -1
	}
	next := l.memory.Next(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.said) > 0 {
		if left := max(l.e.cfg.Logs.After-now.Sub(l.since), 0); next < 0 || left < next {
			next = left
		}
	}
	return next
}

// output is what of one attempt is written in one statement.
type output struct {
	of       store.LogOf
	chunks   []store.LogChunk
	dropped  []store.DroppedLog
	progress []store.StepProgress
	lines    int
}

// write writes the lines that are due; with all, those that would wait for others too. The error is
// the end of ctx.
func (l *logs) write(ctx context.Context, all bool) error {
	if l.memory == nil {
		return nil
	}
	select {
	case l.round <- struct{}{}:
		defer func() { <-l.round }()
	case <-ctx.Done(): // the other one waits for the database
		return context.Cause(ctx)
	}
	items := l.progress(all)
	for {
		due := l.memory.Due(time.Now(), all, logsAtOnce)
		size := 0
		for _, log := range due {
			k := taken(log)
			for i := range k.chunks {
				size += len(k.chunks[i].Content)
			}
			if items = append(items, k); size >= maxLogBytes {
				if err := l.deliver(ctx, items); err != nil {
					return err
				}
				items, size = nil, 0
			}
		}
		if err := l.deliver(ctx, items); err != nil {
			return err
		}
		items = nil
		dropped := l.memory.Dropped()
		l.e.metrics.AttemptLogLines.WithLabelValues("dropped").Add(float64(dropped - l.told))
		l.told = dropped
		l.e.metrics.AttemptLogPending.Set(float64(l.memory.Pending()))
		if len(due) < logsAtOnce {
			return nil
		}
	}
}

// taken takes the lines of an attempt out of the memory.
func taken(log *AttemptLog) (k output) {
	chunks, dropped := log.Take()
	k.of = log.Of
	for i := range chunks {
		k.chunks = append(k.chunks, store.LogChunk{LogOf: log.Of, Chunk: chunks[i]})
		k.lines += chunks[i].Lines
	}
	if dropped != nil {
		k.dropped = []store.DroppedLog{{Task: log.Of.Task, Token: log.Of.Token, Range: *dropped}}
	}
	return k
}

// progress takes what is due of how far handlers are.
func (l *logs) progress(all bool) (items []output) {
	l.mu.Lock()
	said := l.said
	if !all && time.Since(l.since) < l.e.cfg.Logs.After {
		said = nil
	} else {
		l.said = nil
	}
	l.mu.Unlock()
	for _, x := range said {
		x.unsaid.Store(false) // first: what is said from here on is said again
		fraction, message := x.Progress.Get()
		of := x.logOf()
		items = append(items, output{of: of,
			progress: []store.StepProgress{{Task: of.Task, Step: of.Step, Token: of.Token, Fraction: fraction, Message: Text(message, MaxProgress)}}})
	}
	return items
}

// deliver sends one statement until it is answered; what is rejected alone is dropped. The error is
// the end of ctx.
func (l *logs) deliver(ctx context.Context, items []output) error {
	if len(items) == 0 {
		return nil
	}
	err := aside.Apart(items, store.Rejected, func(part []output) error { return l.send(ctx, part) }, func(k output, why error) {
		l.drop([]output{k}, why)
	})
	switch {
	case store.Rejected(err): // all of them, so far
		l.drop(items, err)
	case err != nil:
		return err
	}
	return nil
}

func (l *logs) drop(items []output, why error) {
	lines := 0
	for i := range items {
		lines += items[i].lines
	}
	l.e.metrics.AttemptLogLines.WithLabelValues("rejected").Add(float64(lines))
	l.e.log.Warn("the database rejects the log of an attempt, which is dropped", zap.Stringer("task_uuid", items[0].of.Task), zap.Int("step_no", items[0].of.Step),
		zap.Int("attempts", len(items)), zap.Int("lines", lines), zap.Error(why))
}

// send sends a statement until it is answered or rejected.
func (l *logs) send(ctx context.Context, items []output) error {
	var chunks []store.LogChunk
	var dropped []store.DroppedLog
	var progress []store.StepProgress
	lines := 0
	for i := range items {
		chunks, dropped = append(chunks, items[i].chunks...), append(dropped, items[i].dropped...)
		progress, lines = append(progress, items[i].progress...), lines+items[i].lines
	}
	for try := 0; ; try++ {
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, statementPatience)
			defer cancel()
			return l.e.board.KeepLogs(ctx, chunks, dropped, progress)
		}()
		if err == nil {
			l.e.metrics.AttemptLogLines.WithLabelValues("kept").Add(float64(lines))
		}
		if err == nil || store.Rejected(err) {
			return err
		}
		if try == 0 && ctx.Err() == nil {
			l.e.log.Warn("the logs of attempts were not written and are sent again", zap.Int("lines", lines), zap.Error(err))
		}
		if cause := pause(ctx, try, 0); cause != nil {
			return fmt.Errorf("%w (gave up: %w)", err, cause)
		}
	}
}

// stop writes what is left, within a time.
func (l *logs) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	if err := l.write(ctx, true); err != nil {
		return fmt.Errorf("write the logs of attempts: %w", err)
	}
	return nil
}
