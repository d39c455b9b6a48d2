package remote

import (
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap/zapcore"

	"github.com/tasker-go/tasker/worker"
)

// maxLines bounds the lines of one request.
const maxLines = 1000

const (
	// lateFor is how long lines of a reported step are kept: a process does not wait for the answer to
	// them before it reports, and its two requests overtake each other.
	lateFor = 2 * time.Second
	// leastLate is how many such steps a session has, or as many as it may hold.
	leastLate = 32
)

// remainLocked has lines of a step that is reported kept for a while. A session that sends none stops
// this with its first steps: one that is remembered has its inputs in memory.
func (h *Hub) remainLocked(s *session, reported *step) {
	if s.silent++; s.silent > leastLate {
		return
	}
	if n := len(s.late) - max(leastLate, s.open.Permits) + 1; n > 0 {
		clear(s.late[:n])
		s.late = s.late[n:]
	}
	s.late = append(s.late, reported)
	if s.forget == nil {
		s.forget = time.AfterFunc(lateFor, func() { h.forgetLate(s) })
	} else {
		s.forget.Reset(lateFor)
	}
}

func (h *Hub) forgetLate(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.late = nil
}

// useLate calls fn with the context of a step that the session has just reported. Its handler may have
// returned.
func (h *Hub) useLate(s *session, fence string, fn func(*worker.StepContext) error) error {
	h.mu.Lock()
	var found *step
	if i := slices.IndexFunc(s.late, func(w *step) bool { return w.message.Fence == fence }); i >= 0 {
		found = s.late[i]
	}
	h.mu.Unlock()
	if found == nil {
		return ErrNotHeld
	}
	return fn(found.ctx)
}

// Keep keeps lines with the attempts of the steps that the session holds or has just reported, as
// worker.StepContext.KeepLine does. Those of other steps are left out: they were reported long ago, or lost.
// The error is an InvalidError or ErrNoSession.
func (h *Hub) Keep(id uuid.UUID, l Lines) error {
	if len(l.Lines) > maxLines {
		return invalid("invalid lines: %d of them: want at most %d", len(l.Lines), maxLines)
	}
	levels := make([]zapcore.Level, len(l.Lines))
	for i := range l.Lines {
		if err := levels[i].UnmarshalText([]byte(l.Lines[i].Level)); err != nil || levels[i] > zapcore.ErrorLevel {
			return invalid("invalid level %q: want debug, info, warn or error", l.Lines[i].Level)
		}
	}
	s, err := h.enter(id)
	if err != nil {
		return err
	}
	defer h.leave(s)
	h.mu.Lock()
	s.silent = 0
	h.mu.Unlock()
	for i := range l.Lines {
		line := &l.Lines[i]
		keep := func(ctx *worker.StepContext) error {
			ctx.KeepLine(line.At, levels[i], line.Text, line.Fields)
			return nil
		}
		err := h.useHeld(s, line.Fence, keep)
		if errors.Is(err, ErrNotHeld) {
			err = h.useLate(s, line.Fence, keep)
		}
		if err != nil && !errors.Is(err, ErrNotHeld) {
			return err
		}
	}
	return nil
}
