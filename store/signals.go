package store

import (
	"cmp"
	"context"
	"fmt"
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

// signalSet collects signals; those of one transaction are few.
type signalSet map[signal.Signal]bool

func (t signalSet) add(topic signal.Topic) { t[signal.Signal{Topic: topic}] = true }

// addLane adds that there is something to claim in a lane of a queue. Workers look
// into those of the default priority anyway; of another they are told which it is.
func (t signalSet) addLane(namespace string, queue int32, lane int16) {
	s := signal.Signal{Topic: signal.WorkerTopic(namespace)}
	if lane != Lane(0, true) && lane != Lane(0, false) {
		s.Payload = fmt.Sprintf("%d.%d", queue, lane)
	}
	t[s] = true
}

// HearLane takes in a signal to workers that names a lane: the next claim from the
// marks looks there as well, so that what is urgent is not found only by a full
// scan. Other signals, and what is no lane, are left alone. It is safe for
// concurrent use.
func (s *Store) HearLane(told signal.Signal) {
	queue, lane, ok := strings.Cut(told.Payload, ".")
	if _, forWorkers := told.Topic.WorkerNamespace(); !ok || !forWorkers {
		return
	}
	q, err := strconv.ParseInt(queue, 10, 32)
	if err != nil {
		return
	}
	if l, err := strconv.ParseInt(lane, 10, 16); err == nil && l >= 0 && l <= int64(Lane(workflow.MinPriority, false)) {
		s.marks.heard(laneKey{int32(q), int16(l)})
	}
}

func (t signalSet) signals() []signal.Signal {
	list := make([]signal.Signal, 0, len(t))
	for s := range t {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b signal.Signal) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Payload, b.Payload))
	})
	return list
}

// queueSignals adds the signals of a transaction to it, when signals travel
// in the WAL. A listener then learns of the commit exactly when it happens,
// and of nothing that was rolled back.
func (s *Store) queueSignals(b *pgx.Batch, signals []signal.Signal) {
	if s.opts.SignalsInTransaction {
		queueStatement(b, signals, wal.Statement)
	}
}

// queueNotify adds the signals as a transaction of their own; see
// NotifyAfterCommit.
func (s *Store) queueNotify(b *pgx.Batch, signals []signal.Signal) {
	if s.opts.NotifyAfterCommit {
		queueStatement(b, signals, notify.Statement)
	}
}

// queueStatement leaves out what cannot be sent: a topic of ours never is too
// long, and a hint must not fail the flow that gives it.
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

// commit ends the transaction that b works in and lets its signals follow on
// the same trip. Once the commit is answered the flow has succeeded, whatever
// becomes of the signals: they are hints.
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

// SendsSignals reports whether the store itself sends the signals of what it
// commits; if not, the caller publishes them afterwards.
func (s *Store) SendsSignals() bool { return s.opts.SignalsInTransaction || s.opts.NotifyAfterCommit }

// CreateSignals are the signals of newly created tasks.
func CreateSignals(tasks []NewTask) []signal.Signal {
	topics := signalSet{}
	for i := range tasks {
		topics.addCreated(&tasks[i])
	}
	return topics.signals()
}

// addCreated adds who has to know of a new task: of due times every timer, and
// the engine begins its own steps. Whether an instant has come is for the
// database to say, so both may have to.
func (t signalSet) addCreated(task *NewTask) {
	if task.startsLater() || len(task.DependsOn) > 0 || task.Plan.EngineFirst {
		t.add(signal.TopicDue)
	}
	if task.StartIn <= 0 && len(task.DependsOn) == 0 {
		t.addLane(task.Plan.Template.Namespace, task.Plan.Queue, Lane(task.Priority, false))
	}
}

// ReportSignals are the signals of reported steps.
func ReportSignals() []signal.Signal { return []signal.Signal{{Topic: signal.TopicOrchestration}} }
