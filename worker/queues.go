package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/signal"
)

// queues knows which queues the worker serves: those of its namespaces, or of
// all. A namespace that does not exist yet is waited for. It is safe for
// concurrent use.
type queues struct {
	board board
	names []string // wanted; ignored when every is set
	every bool
	log   *zap.Logger

	kicked chan struct{}  // holds one: read the namespaces again
	fast   func() bool    // whether fast events of others are wanted
	told   []signal.Topic // what the listener was told last; of build, then of watch alone

	mu     sync.RWMutex
	byName map[string]int32
	byID   map[int32]string
	list   []int32
}

func newQueues(b board, names []string, every bool, log *zap.Logger) *queues {
	return &queues{board: b, names: names, every: every, log: log, kicked: make(chan struct{}, 1), fast: func() bool { return false }}
}

// ids are the queues to claim from.
func (q *queues) ids() []int32 {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.list
}

// name is the namespace of a queue.
func (q *queues) name(id int32) string {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.byID[id]
}

// wanted are the namespaces to serve, whether they exist or not.
func (q *queues) wanted() []string {
	if !q.every {
		return q.names
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return slices.Sorted(maps.Keys(q.byName))
}

// missing are the namespaces that do not exist yet.
func (q *queues) missing() []string {
	if q.every {
		return nil
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(q.names), func(name string) bool {
		_, ok := q.byName[name]
		return ok
	})
}

// topics are what the listener must hear. Namespaces that do not exist yet are
// among them.
func (q *queues) topics() []signal.Topic {
	topics, fast := []signal.Topic{signal.TopicControl}, q.fast()
	for _, name := range q.wanted() {
		topics = append(topics, signal.WorkerTopic(name))
		if fast {
			topics = append(topics, signal.FastTopic(name))
		}
	}
	return topics
}

// topicsOf are the topics of queues, for telling others that there is work.
func (q *queues) topicsOf(ids []int32) []signal.Signal {
	signals := make([]signal.Signal, 0, len(ids))
	for _, id := range ids {
		if name := q.name(id); name != "" {
			signals = append(signals, signal.Signal{Topic: signal.WorkerTopic(name)})
		}
	}
	return signals
}

// refresh reads the namespaces and reports whether there are others than
// before.
func (q *queues) refresh(ctx context.Context) (changed bool, err error) {
	names := q.names
	if q.every {
		names = nil // all of them
	}
	byName, err := q.board.Queues(ctx, names)
	if err != nil {
		return false, fmt.Errorf("read the queues of the worker's namespaces: %w", err)
	}
	byID := make(map[int32]string, len(byName))
	for name, id := range byName {
		byID[id] = name
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if maps.Equal(byName, q.byName) {
		return false, nil
	}
	q.byName, q.byID, q.list = byName, byID, slices.Sorted(maps.Keys(byID))
	return true, nil
}

// kick asks for a refresh soon; it never blocks.
func (q *queues) kick() {
	select {
	case q.kicked <- struct{}{}:
	default:
	}
}

// watch refreshes when kicked, and every so often while a namespace is missing
// or all are served. onChange is told of other topics to listen to.
func (q *queues) watch(ctx context.Context, every time.Duration, onChange func(ctx context.Context, topics []signal.Topic)) error {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		if q.every || len(q.missing()) > 0 {
			timer.Reset(every)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-q.kicked:
		}
		changed, err := q.refresh(ctx)
		if err != nil {
			// The kick must not be forgotten.
			q.log.Debug("namespaces not read", zap.Error(err))
			if err := pause(ctx, 3, 0); err != nil {
				return err
			}
			q.kick()
			continue
		}
		if changed {
			q.log.Info("the namespaces served have changed", zap.Strings("namespaces", q.wanted()), zap.Strings("missing", q.missing()))
		}
		if topics := q.topics(); changed || !slices.Equal(topics, q.told) {
			q.told = topics
			onChange(ctx, topics)
		}
	}
}
