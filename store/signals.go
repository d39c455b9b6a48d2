package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/notify"
	"github.com/tasker-go/tasker/signal/wal"
)

// topicSet collects topics; the signals of one transaction are few.
type topicSet map[signal.Topic]bool

func (t topicSet) add(topic signal.Topic) { t[topic] = true }

func (t topicSet) signals() []signal.Signal {
	list := make([]signal.Signal, 0, len(t))
	for topic := range t {
		list = append(list, signal.Signal{Topic: topic})
	}
	slices.SortFunc(list, func(a, b signal.Signal) int {
		if a.Topic < b.Topic {
			return -1
		}
		return 1
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
	topics := topicSet{}
	for i := range tasks {
		topics.addCreated(&tasks[i])
	}
	return topics.signals()
}

// addCreated adds who has to know of a new task: of due times every timer, and
// the engine begins its own steps. Whether an instant has come is for the
// database to say, so both may have to.
func (t topicSet) addCreated(task *NewTask) {
	if task.startsLater() || len(task.DependsOn) > 0 || task.Plan.EngineFirst {
		t.add(signal.TopicDue)
	}
	if task.StartIn <= 0 && len(task.DependsOn) == 0 {
		t.add(signal.WorkerTopic(task.Plan.Template.Namespace))
	}
}

// ReportSignals are the signals of reported steps.
func ReportSignals() []signal.Signal { return []signal.Signal{{Topic: signal.TopicOrchestration}} }
