package signal

import (
	"context"
	"errors"
	"strings"
)

// Topic says where to look when a signal arrives. A topic is also the name of
// the PostgreSQL channel that carries it, so it must fit in 63 bytes.
type Topic string

// The topics of the product.
const (
	// TopicOrchestration: steps were reported.
	TopicOrchestration Topic = "tasker_orchestration"
	// TopicDue: a due time or the end of a lease is earlier than known.
	TopicDue Topic = "tasker_due"
	// TopicTasks: a watched task has ended; the payload holds its UUID (several are
	// separated by commas).
	TopicTasks Topic = "tasker_tasks"
	// TopicControl: the registry changed (a new namespace or template). With a payload of
	// [Revoked] it did not, and concerns the workers that are named alone.
	TopicControl Topic = "tasker_control"

	// TopicEvents: durable domain events were published.
	TopicEvents Topic = "tasker_events"
	// TopicTransitions: tasks that clients follow have changed.
	TopicTransitions Topic = "tasker_transitions"

	workerPrefix = "tasker_worker_"
	fastPrefix   = "tasker_fast_"
	probePrefix  = "tasker_probe_"
)

// MaxTopicBytes is the longest name PostgreSQL accepts for a channel.
const MaxTopicBytes = 63

// MaxPayloadBytes bounds a payload: PostgreSQL rejects 8,000 bytes and more.
const MaxPayloadBytes = 7000

// WorkerTopic is the topic of the queue of one namespace.
func WorkerTopic(namespace string) Topic { return Topic(workerPrefix + namespace) }

// FastTopic is the topic of the fast domain events of one namespace. Its payloads are
// the events themselves, not hints; a signal without payload says that some were lost.
func FastTopic(namespace string) Topic { return Topic(fastPrefix + namespace) }

// ProbeTopic is the topic on which one listener measures its own round trip.
func ProbeTopic(listenerID string) Topic { return Topic(probePrefix + listenerID) }

// revokedPrefix begins the payloads that name workers.
const revokedPrefix = "revoked:"

// Revoked are the signals to workers, by their UUIDs, that claims of theirs were revoked. A
// program that does not know them takes each for a change of the registry.
func Revoked(workers []string) (signals []Signal) {
	for len(workers) > 0 {
		payload := revokedPrefix + workers[0]
		for ; len(workers) > 1 && len(payload)+1+len(workers[1]) <= MaxPayloadBytes; workers = workers[1:] {
			payload += "," + workers[1]
		}
		signals, workers = append(signals, Signal{TopicControl, payload}), workers[1:]
	}
	return signals
}

// Revokes reports whether the signal is one of [Revoked], and whom it names.
func (s Signal) Revokes() (workers []string, ok bool) {
	list, ok := strings.CutPrefix(s.Payload, revokedPrefix)
	if !ok || s.Topic != TopicControl {
		return nil, false
	}
	return strings.Split(list, ","), true
}

// Signal is a hint to look at the rows now. Losing, doubling or reordering
// signals costs time, never work.
type Signal struct {
	Topic Topic
	// Payload narrows the hint; at most MaxPayloadBytes, usually empty. Empty means
	// "anything on this topic": when too many signals wait, one such signal replaces
	// them all.
	Payload string
}

// Publisher sends signals, best effort. Publish never blocks on the network: it passes
// them to a coalescing sender and returns; equal signals that wait for the same flush
// are sent once. It is safe for concurrent use.
type Publisher interface {
	Publish(signals ...Signal)
}

// Transport delivers a batch of well-formed signals to all subscribers in as few round
// trips as possible. Send is bounded by ctx and safe for concurrent use. After an error
// some of the batch may have been delivered.
type Transport interface {
	Send(ctx context.Context, batch []Signal) error
}

// Source opens connections that receive signals.
type Source interface {
	// Name is the name in configuration, logs and metrics: notify, wal, relay, redis, inproc.
	Name() string
	// Connect subscribes to topics and returns once signals published from now on will
	// be received. ctx bounds only the connecting.
	Connect(ctx context.Context, topics []Topic) (Connection, error)
}

// ErrClosed is returned by a connection that was closed.
var ErrClosed = errors.New("signal: closed")

// Connection is one live subscription. Receive and Close may be called from
// different goroutines; the other methods may be called while Receive waits.
type Connection interface {
	// Receive waits for the next signal. When ctx ends, it returns the error
	// of ctx and the connection stays usable; after any other error the
	// connection is unusable and must be closed. After Close it returns
	// ErrClosed.
	Receive(ctx context.Context) (Signal, error)
	// Subscribe replaces the set of topics. Once it has returned, signals
	// published from now on to the new topics will be received. Topics that
	// are in both sets never have a gap.
	Subscribe(ctx context.Context, topics []Topic) error
	// Probe sends a signal on the path of all other signals, so that Receive returns it.
	Probe(ctx context.Context, s Signal) error
	// Close releases the connection; it is idempotent and bounded by ctx.
	Close(ctx context.Context) error
}
