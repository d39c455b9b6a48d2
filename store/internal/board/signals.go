package board

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// maxNamedLanes bounds the lanes named in one signal. With more it names none, and workers
// look everywhere.
const maxNamedLanes = 64

// SignalSet collects signals; those of one transaction are few. A topic has the lanes
// with claimable steps; nil without lanes.
type SignalSet map[signal.Topic]map[laneKey]bool

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

// AddNamed is addLane for a row.
func (t SignalSet) AddNamed(l *NamedLane) error {
	t.addLane(l.Namespace, l.laneKey)
	return nil
}

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
	if _, forWorkers := received.Topic.WorkerNamespace(); !forWorkers || received.Payload == "" {
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

func decodeLane(text string) (k laneKey, ok bool) {
	callable, lane, _ := strings.Cut(text, ".")
	c, err := strconv.ParseInt(callable, 10, 32)
	if err != nil {
		return k, false
	}
	l, err := strconv.ParseInt(lane, 10, 16)
	return laneKey{int32(c), int16(l)}, err == nil && l >= 0 && l <= int64(Lane(workflow.MinPriority, false)) // #nosec G115 -- parsed so
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
		for _, callable := range task.Plan.First {
			t.addLane(task.Plan.Template.Namespace, laneKey{callable, Lane(task.Priority, false)})
		}
	}
}

// ReportSignals are the signals of reported steps.
func ReportSignals() []signal.Signal { return []signal.Signal{{Topic: signal.TopicOrchestration}} }
