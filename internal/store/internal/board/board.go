package board

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/rates"
	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/internal/store/internal/pg"
	"github.com/tasker-go/tasker/internal/store/internal/registry"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Board is the room of live tasks. It is safe for concurrent use.
type Board struct {
	db        *pg.DB
	registry  *registry.Memory
	marks     marks
	direct    directLimits
	frontiers *frontiers
	counts    *rates.Counter // of what the ledger records; nil: nothing is counted
	copyPause atomic.Int32   // coming creations without COPY
	// inLedger is the number of coming claims that read the ledger at once.
	inLedger atomic.Int32
}

// New returns the room.
func New(db *pg.DB, r *registry.Memory, counts *rates.Counter) *Board {
	s := &Board{db: db, registry: r, counts: counts, marks: newMarks(), direct: directLimits{m: map[int32]bool{}}, frontiers: newFrontiers()}
	db.RememberPlaces(func() {
		s.marks.reset()
		s.direct.reset()
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

// maxNamedLanes bounds the lanes named in one signal. With more it names none, and workers
// look everywhere.
const maxNamedLanes = 64

// SignalSet collects signals; those of one transaction are few. A topic has the lanes
// with claimable steps; nil without lanes.
type SignalSet map[signal.Topic]map[laneKey]bool

// Add adds a topic.
func (t SignalSet) Add(topic signal.Topic) { t[topic] = nil }

// addLane adds a lane with claimable steps.
func (t SignalSet) addLane(namespace string, k laneKey) {
	topic := signal.WorkerTopic(namespace)
	lanes, there := t[topic]
	switch {
	case !there:
		t[topic] = map[laneKey]bool{k: true}
	case lanes != nil:
		if lanes[k] = true; len(lanes) > maxNamedLanes {
			t[topic] = nil
		}
	}
}

// NamedLane is a lane as statements return it.
type NamedLane struct {
	Namespace string
	laneKey
}

// begun is a step of a task that has begun.
func begun(priority int) order.Step { return order.Step{Priority: priority, Begun: true} }

// lanes are those that steps of a task were given, by their numbers in the plan, where they are
// not by priority alone. What is expected of a step may change at any time, but its rows
// and signals name the same lane, and it is asked for once.
type lanes map[int]int16

// of returns the lane of a step, see LaneOf.
func (l *lanes) of(plan *registry.Plan, step *workflow.PlanStep, s order.Step, context []byte) int16 {
	if lane, known := (*l)[step.No]; known {
		return lane
	}
	lane := plan.LaneOf(step, s, context)
	if plan.Ordered() {
		if *l == nil {
			*l = lanes{}
		}
		(*l)[step.No] = lane
	}
	return lane
}

// AddNamed is addLane for a row.
func (t SignalSet) AddNamed(l *NamedLane) { t.addLane(l.Namespace, l.laneKey) }

// Signals are the signals of the set, by topic.
func (t SignalSet) Signals() []signal.Signal {
	list := make([]signal.Signal, 0, len(t))
	for topic, lanes := range t {
		list = append(list, signal.Signal{Topic: topic, Payload: encodeLanes(lanes)})
	}
	slices.SortFunc(list, func(a, b signal.Signal) int { return cmp.Compare(a.Topic, b.Topic) })
	return list
}

// encodeLanes writes lanes as 17.5000,18.5000: the callable and its lane.
func encodeLanes(lanes map[laneKey]bool) string {
	var b []byte
	for _, k := range slices.SortedFunc(maps.Keys(lanes), compareLanes) {
		if b != nil {
			b = append(b, ',')
		}
		b = append(strconv.AppendInt(b, int64(k.callable), 10), '.')
		b = strconv.AppendInt(b, int64(k.lane), 10)
	}
	return string(b)
}

// HearLanes receives a signal to workers that names lanes: the next claims from the marks
// read them. It returns true if a callable among them is not known yet: a caller that
// reads it, see Callables, looks everywhere. Other signals are ignored. It is safe for
// concurrent use.
func (s *Board) HearLanes(received signal.Signal) (unknown bool) {
	if _, forWorkers := topicset.WorkerNamespace(received.Topic); !forWorkers || received.Payload == "" {
		return false
	}
	for lane := range strings.SplitSeq(received.Payload, ",") {
		k, ok := decodeLane(lane)
		switch {
		case !ok:
		case s.registry.Callables.Knows(k.callable):
			s.marks.heat(k)
		default:
			unknown = true
		}
	}
	return unknown
}

// ExpectsSteps reports whether a claim from the marks would look for steps of any of the callables.
func (s *Board) ExpectsSteps(callables []int32) bool { return len(s.marks.of(callables)) > 0 }

func decodeLane(text string) (k laneKey, ok bool) {
	callable, lane, _ := strings.Cut(text, ".")
	c, err := strconv.ParseInt(callable, 10, 32)
	if err != nil {
		return k, false
	}
	l, err := strconv.ParseInt(lane, 10, 16)
	return laneKey{int32(c), int16(l)}, err == nil && l >= int64(order.AgedLane) && l <= order.MaxLane // #nosec G115 -- parsed so
}

// CreateSignals are the signals of newly created tasks.
func CreateSignals(tasks []NewTask) []signal.Signal {
	topics := SignalSet{}
	for i := range tasks {
		topics.addCreated(&tasks[i])
	}
	return topics.Signals()
}

// addCreated adds the topics for a new task: due times for every timer, and the engine's
// own steps. Only the database knows whether an instant has come, so both may be needed.
func (t SignalSet) addCreated(task *NewTask) {
	if task.startsLater() || len(task.DependsOn) > 0 || task.Plan.EngineFirst {
		t.Add(signal.TopicDue)
	}
	if task.StartIn <= 0 && len(task.DependsOn) == 0 {
		for _, no := range task.Plan.First {
			t.addLane(task.Plan.Template.Namespace, laneKey{task.Plan.Callables[no], task.lane(no)})
		}
	}
}

// ReportSignals are the signals of reported steps.
func ReportSignals() []signal.Signal { return []signal.Signal{{Topic: signal.TopicOrchestration}} }
