package store

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/signal"
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
	if !s.opts.SignalsInTransaction || len(signals) == 0 {
		return
	}
	messages := make([][]byte, 0, len(signals))
	for i := range signals {
		m, err := signal.Encode(signals[i])
		if err != nil {
			continue // a topic of ours is never too long; a signal is a hint anyway
		}
		messages = append(messages, m)
	}
	b.Queue(`select pg_logical_emit_message(true, $1, m) from unnest($2::bytea[]) m`, signal.WALPrefix, messages)
}

// SignalsInTransaction reports whether the store itself sends the signals of
// what it commits; if not, the caller publishes them afterwards.
func (s *Store) SignalsInTransaction() bool { return s.opts.SignalsInTransaction }

// CreateSignals are the signals of newly created tasks.
func CreateSignals(tasks []NewTask) []signal.Signal {
	topics := topicSet{}
	for i := range tasks {
		topics.add(createTopic(&tasks[i]))
	}
	return topics.signals()
}

func createTopic(t *NewTask) signal.Topic {
	if t.StartIn > 0 {
		return signal.TopicDue // a due time is new: every timer must know
	}
	return signal.WorkerTopic(t.Plan.Template.Namespace)
}

// ReportSignals are the signals of reported steps.
func ReportSignals() []signal.Signal { return []signal.Signal{{Topic: signal.TopicOrchestration}} }
