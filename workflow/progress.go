package workflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tasker-go/tasker/internal/enum"
)

// Status is the recorded state of one step. It is coarser than StepState: only the row of
// the board shows whether a step on it waits for a worker, is running or reported.
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
	StatusTolerated // failed for good in a group of batches that completed without it
	statusCount
)

var statusNames = enum.Names[Status]{
	StatusNotCreated: "not_created", StatusWaiting: "pending", StatusOnBoard: "on_board", StatusScheduled: "waiting_for_retry",
	StatusComplete: "complete", StatusResolved: "resolved_manually", StatusError: "error", StatusCancelled: "cancelled",
	StatusTolerated: "error",
}

// String is the name used in messages; for ended steps the name of the StepState.
func (s Status) String() string { return statusNames.Name(s) }

// Ended reports whether the step has nothing on the board and will not move
// by itself.
func (s Status) Ended() bool { return s >= StatusComplete }

// satisfies reports whether dependents may run.
func (s Status) satisfies() bool { return s == StatusComplete || s == StatusResolved }

// StepProgress is the recorded progress of one step.
type StepProgress struct {
	Status    Status
	Crashes   uint8  // attempts that ended with a lost lease; saturates
	Attempts  uint16 // executions that have ended
	Remaining uint16 // parents that are not satisfied yet
}

// Progress is the recorded state of a live task: one entry per step number. Steps that were
// created at run time follow those of the plan; Groups describes them.
type Progress struct {
	Steps  []StepProgress
	Groups []Group
	// Ending is how the task will end after its compensations; 0: none are running.
	Ending TaskState
	// Retry is the request's retry policy for this task; nil: the template's. It never
	// changes.
	Retry *RetryOverride
}

// The layout of an encoded progress, as far as statements and views read it with get_byte:
// the version is the first byte; step n begins at progressHeader + n * progressPerStep.
const (
	progressHeader     = 2 // version, number of groups
	progressPerStep    = 6 // status, crashes, attempts, remaining
	progressStatusAt   = 0 // of a step
	progressAttemptsAt = 2 // of a step, two bytes
	// progressRetry is the version with a RetryOverride; the last progressMaxAttempts bytes
	// are its number of attempts.
	progressRetry       = 4
	progressMaxAttempts = 2

	progressPlain    = 1  // the version without groups
	progressGrouped  = 2  // with groups behind the steps, whose number is the second byte
	progressEnding   = 3  // with one byte behind the groups; progressRetry has it too, 0 where there is none
	progressPerGroup = 10 // batchable, template, first, count, settled
)

const maxGroups = 255

// ProgressLayout is that layout, for the statements and views that read parts of a progress.
type ProgressLayout struct {
	Header, PerStep, PerGroup     int // bytes
	StatusAt, AttemptsAt          int // of a step
	Plain, Grouped, Ending, Retry int // versions
	MaxAttempts                   int // bytes, the last ones of a version Retry
}

// LayoutOfProgress returns the layout that Encode writes.
func LayoutOfProgress() ProgressLayout {
	return ProgressLayout{Header: progressHeader, PerStep: progressPerStep, PerGroup: progressPerGroup,
		StatusAt: progressStatusAt, AttemptsAt: progressAttemptsAt,
		Plain: progressPlain, Grouped: progressGrouped, Ending: progressEnding, Retry: progressRetry, MaxAttempts: progressMaxAttempts}
}

// NewProgress is the progress of a new task.
func NewProgress(p *Plan) *Progress { return &Progress{Steps: firstSteps(p, nil)} }

// firstSteps appends the steps of a new task to an empty list.
func firstSteps(p *Plan, steps []StepProgress) []StepProgress {
	steps = slices.Grow(steps, len(p.Steps))
	for no := range p.Steps {
		s := StepProgress{Remaining: uint16(len(p.Steps[no].Parents))} // #nosec G115 -- at most MaxSteps
		if p.Steps[no].Initial {
			s.Status = StatusWaiting
		}
		steps = append(steps, s)
	}
	return steps
}

// Encode writes the progress in its fixed-width form: a header of two bytes, six bytes per
// step, then ten per group and, during compensations, one for how the task will end
// (version 3). A task with retries of its own always has that byte, followed by the retries
// (version 4). Without both it is version 2, and without groups version 1, which older
// programs know. Fixed width lets statements read parts of it, see ProgressLayout.
func (g *Progress) Encode() []byte {
	size := g.encodedSize()
	b := make([]byte, size)
	b[0], b[1] = progressPlain, byte(len(g.Groups)) // #nosec G115 -- at most maxGroups
	entries := b[progressHeader:]
	for i := range g.Steps {
		s, e := &g.Steps[i], entries[i*progressPerStep:][:progressPerStep]
		e[progressStatusAt], e[1] = byte(s.Status), s.Crashes
		binary.BigEndian.PutUint16(e[progressAttemptsAt:], s.Attempts)
		binary.BigEndian.PutUint16(e[4:], s.Remaining)
	}
	if len(g.Groups) > 0 {
		b[0] = progressGrouped
		encodeGroups(entries[progressPerStep*len(g.Steps):], g.Groups)
	}
	switch {
	case g.Retry != nil:
		at := size - g.Retry.encodedSize()
		b[0], b[at-1] = progressRetry, byte(g.Ending)
		g.Retry.encode(b[at:])
	case g.Ending != 0:
		b[0], b[size-1] = progressEnding, byte(g.Ending)
	}
	return b
}

func (g *Progress) encodedSize() int {
	size := progressHeader + progressPerStep*len(g.Steps) + progressPerGroup*len(g.Groups)
	if g.Ending != 0 || g.Retry != nil {
		size++
	}
	if g.Retry != nil {
		size += g.Retry.encodedSize()
	}
	return size
}

// DecodeProgress reads what Encode wrote. An error that is errors.ErrUnsupported says that a
// newer program has written it.
func DecodeProgress(b []byte) (*Progress, error) {
	if len(b) < progressHeader {
		return nil, fmt.Errorf("progress of %d bytes is cut short", len(b))
	}
	groups, ending := int(b[1]), TaskState(0)
	var retry *RetryOverride
	switch b[0] {
	case progressPlain:
		groups = 0
	case progressGrouped:
		if groups == 0 {
			return nil, errors.New("progress has a place for groups and none in it")
		}
	case progressEnding:
		ending, b = TaskState(b[len(b)-1]), b[:len(b)-1]
		if !ending.Terminal() {
			return nil, fmt.Errorf("progress says that the task will end as %s", ending)
		}
	case progressRetry:
		var err error
		if retry, b, err = decodeRetry(b); err != nil {
			return nil, err
		}
		ending, b = TaskState(b[len(b)-1]), b[:len(b)-1]
		if len(b) < progressHeader || ending != 0 && !ending.Terminal() {
			return nil, fmt.Errorf("progress says that the task will end as %s", ending)
		}
	default:
		return nil, fmt.Errorf("progress has version %d, this program knows %d: %w", b[0], progressRetry, errors.ErrUnsupported)
	}
	size := len(b) - progressHeader - groups*progressPerGroup
	if size < 0 || size%progressPerStep != 0 {
		return nil, fmt.Errorf("progress of %d bytes is cut short", len(b))
	}
	entries := b[progressHeader:]
	g := &Progress{Steps: make([]StepProgress, size/progressPerStep), Ending: ending, Retry: retry}
	for i := range g.Steps {
		s, e := &g.Steps[i], entries[i*progressPerStep:][:progressPerStep]
		if e[progressStatusAt] >= byte(statusCount) {
			return nil, fmt.Errorf("progress has unknown status %d for step %d: %w", e[progressStatusAt], i, errors.ErrUnsupported)
		}
		s.Status, s.Crashes = Status(e[progressStatusAt]), e[1]
		s.Attempts, s.Remaining = binary.BigEndian.Uint16(e[progressAttemptsAt:]), binary.BigEndian.Uint16(e[4:])
	}
	var err error
	g.Groups, err = decodeGroups(entries[size:], groups, len(g.Steps))
	return g, err
}

// onBoard reports whether the step has a row of the board: it is claimable, running or reported,
// now or when it is due.
func (s Status) onBoard() bool { return s == StatusOnBoard || s == StatusScheduled }

// statusSet is a set of statuses.
type statusSet uint16

func (set statusSet) has(s Status) bool { return set&(1<<s) != 0 }

// statuses is the set of statuses of all steps.
func (g *Progress) statuses() (set statusSet) {
	for i := range g.Steps {
		set |= 1 << g.Steps[i].Status
	}
	return set
}
