package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// Queues holds what the worker claims: the callables of its namespaces, or of all, that
// it has handlers for. It waits for namespaces that do not exist yet. It is safe for
// concurrent use.
type Queues struct {
	board Board
	names []string // configured; ignored if every is set
	every bool
	can   func(workflow.HandlerReference) bool // whether the worker can run it
	log   *zap.Logger

	kicked   chan struct{}  // capacity 1: read the namespaces again
	fast     func() bool    // whether the worker receives fast events of others
	listened []signal.Topic // last topics given to the listener; used by Listen, then only by Watch

	mu     sync.RWMutex
	byName map[string]int32
	byID   map[int32]string
	offer  []int32
	offers uint64              // version of the callables behind offer
	left   map[int32]time.Time // callables that are not offered before then
}

// NewQueues returns the queues of the named namespaces, or of all. can says whether the
// worker can run a handler, fast whether it receives the fast events of other workers.
func NewQueues(b Board, names []string, every bool, can func(workflow.HandlerReference) bool, fast func() bool, log *zap.Logger) *Queues {
	return &Queues{board: b, names: names, every: every, can: can, log: log, kicked: make(chan struct{}, 1), left: map[int32]time.Time{}, fast: fast}
}

// Callables returns those to claim, in the order of their ids.
func (q *Queues) Callables() []int32 {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.offer
}

// none reports whether no namespace can be served yet.
func (q *Queues) none() bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return len(q.byID) == 0
}

// name returns the namespace of a queue.
func (q *Queues) name(id int32) string {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.byID[id]
}

// Wanted returns the namespaces to serve, whether they exist or not.
func (q *Queues) Wanted() []string {
	if !q.every {
		return q.names
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	return slices.Sorted(maps.Keys(q.byName))
}

// Missing returns the namespaces that do not exist yet.
func (q *Queues) Missing() []string {
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

// Topics returns the topics for the listener, including those of namespaces that do not
// exist yet.
func (q *Queues) Topics() []signal.Topic {
	topics, fast := []signal.Topic{signal.TopicControl}, q.fast()
	for _, name := range q.Wanted() {
		topics = append(topics, signal.WorkerTopic(name))
		if fast {
			topics = append(topics, signal.FastTopic(name))
		}
	}
	return topics
}

// reoffer computes which known callables the worker can run and reports whether they have
// changed.
func (q *Queues) reoffer() (changed bool) {
	var offer []int32
	q.mu.RLock()
	served := q.byID
	q.mu.RUnlock()
	version, left := q.board.CallablesVersion(), q.stillLeft(time.Now())
	for _, c := range q.board.KnownCallables() { // called without the lock: resolvers are foreign code
		if _, ours := served[c.Namespace]; ours && !left[c.ID] && q.can(c.Handler) {
			offer = append(offer, c.ID)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	changed = !slices.Equal(offer, q.offer)
	q.offer, q.offers = offer, version
	return changed
}

// leave stops offering a callable until a time.
func (q *Queues) leave(callable int32, until time.Time) {
	q.mu.Lock()
	q.left[callable] = until
	q.mu.Unlock()
	q.reoffer()
}

// stillLeft returns the callables that are not offered now and forgets the others.
func (q *Queues) stillLeft(now time.Time) map[int32]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := make(map[int32]bool, len(q.left))
	for callable, until := range q.left {
		if left[callable] = until.After(now); !left[callable] {
			delete(q.left, callable)
		}
	}
	return left
}

// ReofferNew calls reoffer if there are new callables or some are offered again.
func (q *Queues) ReofferNew() (changed bool) {
	q.mu.RLock()
	current, now := q.offers == q.board.CallablesVersion(), time.Now()
	for _, until := range q.left {
		current = current && until.After(now)
	}
	q.mu.RUnlock()
	return !current && q.reoffer()
}

// Refresh reads the namespaces and their callables and reports whether those to claim
// have changed.
func (q *Queues) Refresh(ctx context.Context) (changed bool, err error) {
	names := q.names
	if q.every {
		names = nil // all of them
	}
	byName, err := q.board.Queues(ctx, names)
	if err != nil {
		return false, fmt.Errorf("read the queues of the worker's namespaces: %w", err)
	}
	if _, err := q.board.Callables(ctx); err != nil {
		return false, fmt.Errorf("read the callables of the worker's namespaces: %w", err)
	}
	byID := make(map[int32]string, len(byName))
	for name, id := range byName {
		byID[id] = name
	}
	q.mu.Lock()
	changed = !maps.Equal(byName, q.byName)
	q.byName, q.byID = byName, byID
	q.mu.Unlock()
	return q.reoffer() || changed, nil
}

// Listen returns the topics for the listener at its start; Watch tells of changes.
func (q *Queues) Listen() []signal.Topic {
	q.listened = q.Topics()
	return q.listened
}

// Kick requests a refresh; it never blocks.
func (q *Queues) Kick() {
	select {
	case q.kicked <- struct{}{}:
	default:
	}
}

// Watch refreshes when kicked, and periodically while a namespace is missing or all are
// served. onChange receives changed topics to listen to.
func (q *Queues) Watch(ctx context.Context, every time.Duration, onChange func(ctx context.Context, topics []signal.Topic)) error {
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		if q.every || len(q.Missing()) > 0 {
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
		changed, err := q.Refresh(ctx)
		if err != nil {
			// Repeat the kick.
			q.log.Debug("namespaces not read", zap.Error(err))
			if err := pause(ctx, 3, 0); err != nil {
				return err
			}
			q.Kick()
			continue
		}
		if changed {
			q.log.Info("the served namespaces or callables have changed", zap.Strings("namespaces", q.Wanted()), zap.Strings("missing", q.Missing()),
				zap.Int("callables", len(q.Callables())))
		}
		if topics := q.Topics(); changed || !slices.Equal(topics, q.listened) {
			q.listened = topics
			onChange(ctx, topics)
		}
	}
}
