package workflow

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Status is what Advance remembers of one step. It is coarser than StepState:
// whether a step on the board is waiting for a worker, running or reported is
// known by the board's row alone.
type Status uint8

// The statuses of a step.
const (
	StatusNotCreated Status = iota // exists only in the plan so far
	StatusWaiting                  // waits for parents
	StatusOnBoard                  // claimable, running or reported
	StatusScheduled                // on the board with a due time: delayed or backing off
	StatusComplete
	StatusResolved
	StatusError
	StatusCancelled
	statusCount
)

var statusNames = [statusCount]string{
	StatusNotCreated: "not_created", StatusWaiting: "pending", StatusOnBoard: "on_board", StatusScheduled: "waiting_for_retry",
	StatusComplete: "complete", StatusResolved: "resolved_manually", StatusError: "error", StatusCancelled: "cancelled",
}

// String is the name used in messages; what ends has the name of its StepState.
func (s Status) String() string {
	if s >= statusCount {
		return fmt.Sprintf("unknown status %d", s)
	}
	return statusNames[s]
}

// Ended reports whether the step has nothing on the board and will not move
// by itself.
func (s Status) Ended() bool { return s >= StatusComplete }

// Satisfies reports whether dependents may run.
func (s Status) Satisfies() bool { return s == StatusComplete || s == StatusResolved }

// StepProgress is the memory of one step.
type StepProgress struct {
	Status    Status
	Crashes   uint8  // attempts that ended with a lost lease; saturates
	Attempts  uint16 // executions that have ended
	Remaining uint16 // parents that are not satisfied yet
}

// Progress is what is remembered of a live task: one entry per step number.
type Progress struct {
	Steps []StepProgress
}

const (
	progressVersion  = 1
	progressHeader   = 2 // version, reserved
	progressPerStep  = 6 // status, crashes, attempts, remaining
	progressStatusAt = 0
)

// NewProgress is the progress of a task of which nothing has happened.
func NewProgress(p *Plan) *Progress {
	g := &Progress{Steps: make([]StepProgress, len(p.Steps))}
	for no := range p.Steps {
		g.Steps[no].Remaining = uint16(len(p.Steps[no].Parents)) // #nosec G115 -- at most MaxSteps
		if p.Steps[no].Initial {
			g.Steps[no].Status = StatusWaiting
		}
	}
	return g
}

// Clone returns a copy that shares nothing.
func (g *Progress) Clone() *Progress {
	return &Progress{Steps: append([]StepProgress(nil), g.Steps...)}
}

// Encode writes the progress in its fixed-width form (version 1): a header of
// two bytes, then six bytes per step. Fixed width lets a view read the status
// of step n with get_byte(progress, 2 + 6n).
func (g *Progress) Encode() []byte {
	return g.AppendEncoded(make([]byte, 0, progressHeader+progressPerStep*len(g.Steps)))
}

// AppendEncoded appends what Encode returns to b, for a caller that encodes
// many into one buffer.
func (g *Progress) AppendEncoded(b []byte) []byte {
	from, size := len(b), progressHeader+progressPerStep*len(g.Steps)
	b = slices.Grow(b, size)[:from+size]
	b[from], b[from+1] = progressVersion, 0
	entries := b[from+progressHeader:]
	for i := range g.Steps {
		s, e := &g.Steps[i], entries[i*progressPerStep:][:progressPerStep]
		e[progressStatusAt], e[1] = byte(s.Status), s.Crashes
		binary.BigEndian.PutUint16(e[2:], s.Attempts)
		binary.BigEndian.PutUint16(e[4:], s.Remaining)
	}
	return b
}

// DecodeProgress reads what Encode wrote.
func DecodeProgress(b []byte) (*Progress, error) {
	if len(b) < progressHeader || (len(b)-progressHeader)%progressPerStep != 0 {
		return nil, fmt.Errorf("progress of %d bytes is cut short", len(b))
	}
	if b[0] != progressVersion {
		return nil, fmt.Errorf("progress has version %d, this program knows %d", b[0], progressVersion)
	}
	entries := b[progressHeader:]
	g := &Progress{Steps: make([]StepProgress, len(entries)/progressPerStep)}
	for i := range g.Steps {
		s, e := &g.Steps[i], entries[i*progressPerStep:][:progressPerStep]
		if e[progressStatusAt] >= byte(statusCount) {
			return nil, fmt.Errorf("progress has unknown status %d for step %d", e[progressStatusAt], i)
		}
		s.Status, s.Crashes = Status(e[progressStatusAt]), e[1]
		s.Attempts, s.Remaining = binary.BigEndian.Uint16(e[2:]), binary.BigEndian.Uint16(e[4:])
	}
	return g, nil
}

// Tally counts the steps of a task by what they are doing.
type Tally struct {
	Total, Waiting, OnBoard, Scheduled, Complete, Resolved, Error, Cancelled int
}

// Tally counts the steps that exist.
func (g *Progress) Tally() Tally {
	var t Tally
	for _, s := range g.Steps {
		if s.Status == StatusNotCreated {
			continue
		}
		t.Total++
		switch s.Status {
		case StatusWaiting:
			t.Waiting++
		case StatusOnBoard:
			t.OnBoard++
		case StatusScheduled:
			t.Scheduled++
		case StatusComplete:
			t.Complete++
		case StatusResolved:
			t.Resolved++
		case StatusError:
			t.Error++
		case StatusCancelled:
			t.Cancelled++
		}
	}
	return t
}

// statusSet is a set of statuses.
type statusSet uint16

func (set statusSet) has(s Status) bool { return set&(1<<s) != 0 }

// statuses are those that steps are in. Advance asks for them each time
// something happens, and they are found sooner than a Tally.
func (g *Progress) statuses() (set statusSet) {
	for i := range g.Steps {
		set |= 1 << g.Steps[i].Status
	}
	return set
}
