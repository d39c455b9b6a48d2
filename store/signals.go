package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/wal"
	"github.com/tasker-go/tasker/workflow"
)

// maxNamedLanes bounds the lanes named in one signal. With more it names none, and workers
// look everywhere.
const maxNamedLanes = 64

// signalSet collects signals; those of one transaction are few. A topic has the lanes
// with claimable steps; nil without lanes.
type signalSet map[signal.Topic]map[laneKey]bool

func (t signalSet) add(topic signal.Topic) { t[topic] = nil }

// addLane adds a lane with claimable steps.
func (t signalSet) addLane(namespace string, k laneKey) {
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

// namedLane is a lane as statements return it.
type namedLane struct {
	Namespace string
	laneKey
}

// addNamed is addLane for a row.
func (t signalSet) addNamed(l *namedLane) error {
	t.addLane(l.Namespace, l.laneKey)
	return nil
}

func (t signalSet) signals() []signal.Signal {
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
func (s *Store) HearLanes(received signal.Signal) (unknown bool) {
	if _, forWorkers := received.Topic.WorkerNamespace(); !forWorkers || received.Payload == "" {
		return false
	}
	for lane := range strings.SplitSeq(received.Payload, ",") {
		k, ok := decodeLane(lane)
		switch {
		case !ok:
		case s.callables.knows(k.callable):
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

// queueSignals adds the signals of a transaction to it, if signals travel in the WAL. A
// listener then receives them exactly on commit, and none of a rollback.
func (s *Store) queueSignals(b *pgx.Batch, signals []signal.Signal) {
	if s.opts.SignalsInTransaction {
		queueStatement(b, signals, wal.Statement)
	}
}

// queueNotify adds the signals as a transaction of their own; see NotifyAfterCommit.
func (s *Store) queueNotify(b *pgx.Batch, signals []signal.Signal) {
	if s.opts.NotifyAfterCommit {
		queueStatement(b, signals, notify.Statement)
	}
}

// queueStatement skips signals that cannot be sent: the engine's topics are never too
// long, and a hint must not fail its flow.
func queueStatement(b *pgx.Batch, signals []signal.Signal, statement func([]signal.Signal) (string, []any, error)) {
	sendable := slices.DeleteFunc(slices.Clone(signals), func(s signal.Signal) bool { return s.Validate() != nil })
	if len(sendable) == 0 {
		return
	}
	if sql, args, err := statement(sendable); err == nil {
		b.Queue(sql, args...)
	}
}

// transact runs the statements that fill adds as one transaction, in one round
// trip, and sends its signals the configured way.
func (s *Store) transact(ctx context.Context, db *conn, signals []signal.Signal, fill func(b *pgx.Batch)) error {
	b := &pgx.Batch{}
	if !s.opts.NotifyAfterCommit || len(signals) == 0 {
		fill(b)
		s.queueSignals(b, signals)
		return db.SendBatch(ctx, b).Close()
	}
	b.Queue("begin")
	fill(b)
	return s.commit(ctx, db, b, signals)
}

// commit ends the transaction of b and sends its signals in the same round trip. Once the
// commit is answered the flow has succeeded, regardless of the signals: they are hints.
func (s *Store) commit(ctx context.Context, db *conn, b *pgx.Batch, signals []signal.Signal) error {
	s.queueSignals(b, signals)
	committed := false
	b.Queue("commit").Exec(func(pgconn.CommandTag) error {
		committed = true
		return nil
	})
	s.queueNotify(b, signals)
	err := db.SendBatch(ctx, b).Close()
	if err == nil || committed {
		return nil
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = db.Exec(undo, "rollback") // the pool closes a connection that is not idle
	return err
}

// notify sends the signals of a transaction that has been committed already.
func (s *Store) notify(ctx context.Context, db *conn, signals []signal.Signal) error {
	b := &pgx.Batch{}
	s.queueNotify(b, signals)
	if b.Len() == 0 {
		return nil
	}
	return db.SendBatch(ctx, b).Close()
}

// SendsSignals reports whether the store itself sends the signals of its commits; if not,
// the caller publishes them afterwards.
func (s *Store) SendsSignals() bool { return s.opts.SignalsInTransaction || s.opts.NotifyAfterCommit }

// CreateSignals are the signals of newly created tasks.
func CreateSignals(tasks []NewTask) []signal.Signal {
	topics := signalSet{}
	for i := range tasks {
		topics.addCreated(&tasks[i])
	}
	return topics.signals()
}

// addCreated adds the topics for a new task: due times for every timer, and the engine's
// own steps. Only the database knows whether an instant has come, so both may be needed.
func (t signalSet) addCreated(task *NewTask) {
	if task.startsLater() || len(task.DependsOn) > 0 || task.Plan.EngineFirst {
		t.add(signal.TopicDue)
	}
	if task.StartIn <= 0 && len(task.DependsOn) == 0 {
		for _, callable := range task.Plan.first {
			t.addLane(task.Plan.Template.Namespace, laneKey{callable, Lane(task.Priority, false)})
		}
	}
}

// ReportSignals are the signals of reported steps.
func ReportSignals() []signal.Signal { return []signal.Signal{{Topic: signal.TopicOrchestration}} }
