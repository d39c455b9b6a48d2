package board

import (
	"encoding/binary"
	"encoding/json"
	"sync/atomic"

	"github.com/tasker-go/tasker/store/internal/pg"
	"github.com/tasker-go/tasker/store/internal/registry"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/workflow"
)

// Board is the room of live tasks. It is safe for concurrent use.
type Board struct {
	db        *pg.DB
	registry  *registry.Memory
	marks     marks
	frontiers *frontiers
	copyPause atomic.Int32 // coming creations without COPY
	// inLedger is the number of coming claims that read the ledger at once.
	inLedger atomic.Int32
}

// New returns the room.
func New(db *pg.DB, r *registry.Memory) *Board {
	s := &Board{db: db, registry: r, marks: newMarks(), frontiers: newFrontiers()}
	db.Remember(func() {
		s.marks.reset()
		s.frontiers.reset()
	})
	return s
}

// StepUUID derives the UUID of a step from its task and number, as
// tasker.step_uuid does in SQL: the last two bytes of the task's UUID,
// xor (step + 1).
func StepUUID(task uuid.UUID, step int) uuid.UUID {
	task[14] ^= byte((step + 1) >> 8)
	task[15] ^= byte(step + 1) // only the low byte
	return task
}

// BatchUUID is the UUID of a step whose number earlier steps had: a batch created again
// is another step, and calls that a handler made under the earlier UUID do not count for
// it. run is the number of earlier ones, as tasker.step_uuid takes it: bytes 10 to 13,
// xor run.
func BatchUUID(task uuid.UUID, step, run int) uuid.UUID {
	id := StepUUID(task, step)
	for i := range 4 {
		id[13-i] ^= byte(run >> (8 * i)) // only the low byte
	}
	return id
}

// StepOf splits the UUID of a step of a task, see BatchUUID; ok is false if it belongs to
// another task.
func StepOf(task, id uuid.UUID) (step, run int, ok bool) {
	for i := range id {
		id[i] ^= task[i]
	}
	step = int(binary.BigEndian.Uint16(id[14:])) - 1
	run = int(binary.BigEndian.Uint32(id[10:]))
	return step, run, step >= 0 && [10]byte(id[:10]) == [10]byte{}
}

// Lane is the order of claims in a queue, smallest first: by priority (higher first), and
// within a priority the steps of tasks that have begun before the first steps of new
// ones, so that begun tasks finish.
func Lane(priority int, started bool) int16 {
	lane := 2 * (workflow.MaxPriority - min(max(priority, workflow.MinPriority), workflow.MaxPriority))
	if !started {
		lane++
	}
	return int16(lane) // #nosec G115 -- at most 401
}

// What a waiting step awaits is one text, so that one index finds it: an event by
// namespace, name and key, a decision by its token, the end of a task by its UUID.
const (
	AwaitsEvent    = "e"
	AwaitsApproval = "a"
	AwaitsTask     = "t"
	AwaitsParts    = "\x1f" // cannot be in a name or a key
)

// Wait is the document of a waiting step.
type Wait struct {
	Kind     string          `json:"kind"`
	Event    string          `json:"event,omitempty"`
	Key      string          `json:"key,omitempty"`
	Prompt   string          `json:"prompt,omitempty"`
	TaskUUID *uuid.UUID      `json:"task_uuid,omitempty"`
	Outcome  int16           `json:"outcome,omitempty"` // with the three below: its end when due
	Retry    bool            `json:"retryable,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    json.RawMessage `json:"error,omitempty"`
}

// WaitForTasks is the kind of wait of a task's first steps while it depends on others.
const WaitForTasks = "tasks"
