package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/workflow"
)

// queues holds what the worker claims: the callables of its namespaces, or of all, that
// it has handlers for. It waits for namespaces that do not exist yet. It is safe for
// concurrent use.
type queues struct {
	cfg      *Config
	board    Board
	kicked   chan struct{}  // capacity 1: read the namespaces again
	listened []signal.Topic // last topics given to the listener; used by Open, then only by the watch

	served atomic.Pointer[namespaces]

	mu     sync.RWMutex
	offer  []int32
	offers uint64              // version of the callables behind offer
	left   map[int32]time.Time // callables that are not offered before then
	// limited are the callables with a limit: claims of their own take their steps.
	limited map[int32]store.LimitedCallable
}

// namespaces are those that exist of the namespaces to serve. It does not change.
type namespaces struct {
	byName map[string]int32
	byID   map[int32]string
}

func newQueues(cfg *Config) *queues {
	q := &queues{cfg: cfg, board: cfg.Board, kicked: make(chan struct{}, 1), left: map[int32]time.Time{}}
	q.served.Store(&namespaces{})
	return q
}

// callables returns those to claim, in the order of their ids.
func (q *queues) callables() []int32 {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.offer
}

// claimable returns those of callables that claims take, and those for claims of limited
// steps; ahead says that some of these have room for steps that begin later.
func (q *queues) claimable() (free, limited []int32, ahead bool) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if len(q.limited) == 0 {
		return q.offer, nil, false
	}
	for _, c := range q.offer {
		l, is := q.limited[c]
		if is {
			limited, ahead = append(limited, c), ahead || l.Ahead
		}
		if !is || l.Removing {
			free = append(free, c)
		}
	}
	return free, limited, ahead
}

// acting returns the callables whose steps do not wait when they are beyond a limit.
func (q *queues) acting() (list []int32) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	for _, c := range q.offer {
		if q.limited[c].Acts {
			list = append(list, c)
		}
	}
	return list
}

// none reports whether no namespace can be served yet.
func (q *queues) none() bool { return len(q.served.Load().byID) == 0 }

// name returns the namespace of a queue.
func (q *queues) name(id int32) string { return q.served.Load().byID[id] }

// wanted returns the namespaces to serve, whether they exist or not.
func (q *queues) wanted() []string {
	if !q.cfg.Every {
		return q.cfg.Namespaces
	}
	return slices.Sorted(maps.Keys(q.served.Load().byName))
}

// missing returns the namespaces that do not exist yet.
func (q *queues) missing() []string {
	if q.cfg.Every {
		return nil
	}
	served := q.served.Load().byName
	return slices.DeleteFunc(slices.Clone(q.cfg.Namespaces), func(name string) bool {
		_, ok := served[name]
		return ok
	})
}

// topics returns the topics for the listener, including those of namespaces that do not
// exist yet.
func (q *queues) topics() []signal.Topic {
	topics, fast := []signal.Topic{signal.TopicControl}, q.cfg.Fast()
	for _, name := range q.wanted() {
		topics = append(topics, signal.WorkerTopic(name))
		if fast {
			topics = append(topics, signal.FastTopic(name))
		}
	}
	return topics
}

// reoffer computes which known callables the worker can run and reports whether they have
// changed.
func (q *queues) reoffer() (changed bool) {
	var offer []int32
	served := q.served.Load().byID
	version, left := q.board.CallablesVersion(), q.stillLeft(time.Now())
	for _, c := range q.board.KnownCallables() { // called without the lock: resolvers are foreign code
		if name, ours := served[c.Namespace]; ours && !left[c.ID] && q.cfg.Can(name, c.Handler) {
			offer = append(offer, c.ID)
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	changed = !slices.Equal(offer, q.offer)
	q.offer, q.offers = offer, version
	return changed
}

// Known implements Host.
func (e *Engine) Known(ctx context.Context) (map[string][]workflow.HandlerReference, error) {
	callables, err := e.board.Callables(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string][]workflow.HandlerReference{}
	for _, c := range callables {
		if name := e.queues.name(c.Namespace); name != "" {
			known[name] = append(known[name], c.Handler)
		}
	}
	return known, nil
}

// offering reports whether a callable is among those to claim.
func (q *queues) offering(callable int32) bool { return slices.Contains(q.callables(), callable) }

// leave stops offering a callable until a time.
func (q *queues) leave(callable int32, until time.Time) {
	q.mu.Lock()
	q.left[callable] = until
	q.mu.Unlock()
	q.reoffer()
}

// stillLeft returns the callables that are not offered now and forgets the others.
func (q *queues) stillLeft(now time.Time) map[int32]bool {
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

// reofferNew calls reoffer if there are new callables or some are offered again.
func (q *queues) reofferNew() (changed bool) {
	q.mu.RLock()
	current, now := q.offers == q.board.CallablesVersion(), time.Now()
	for _, until := range q.left {
		current = current && until.After(now)
	}
	q.mu.RUnlock()
	return !current && q.reoffer()
}

// learn takes over what a full scan has read: new callables, and which of them are limited.
// It reports whether other steps may be claimed than before.
func (q *queues) learn() (changed bool) {
	limited := q.board.KnownLimits()
	q.mu.Lock()
	changed = !maps.Equal(limited, q.limited)
	q.limited = limited
	q.mu.Unlock()
	return q.reofferNew() || changed
}

// refresh reads the namespaces and their callables and reports whether those to claim
// have changed.
func (q *queues) refresh(ctx context.Context) (changed bool, err error) {
	names := q.cfg.Namespaces
	if q.cfg.Every {
		names = nil // all of them
	}
	byName, err := q.board.Queues(ctx, names)
	if err != nil {
		return false, fmt.Errorf("read the queues of the worker's namespaces: %w", err)
	}
	if _, err := q.board.Callables(ctx); err != nil {
		return false, fmt.Errorf("read the callables of the worker's namespaces: %w", err)
	}
	limited, err := q.board.LimitedCallables(ctx)
	if err != nil {
		return false, fmt.Errorf("read which callables are limited: %w", err)
	}
	q.mu.Lock()
	q.limited = limited
	q.mu.Unlock()
	byID := make(map[int32]string, len(byName))
	for name, id := range byName {
		byID[id] = name
	}
	before := q.served.Swap(&namespaces{byName, byID})
	return q.reoffer() || !maps.Equal(byName, before.byName), nil
}

// kick requests a refresh; it never blocks.
func (q *queues) kick() {
	lifecycle.Nudge(q.kicked)
}

// watchQueues refreshes them when kicked, and periodically while a namespace is missing or
// all are served.
func (e *Engine) watchQueues(ctx context.Context) error {
	q, every := e.queues, e.cfg.HeartbeatInterval
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		if q.cfg.Every || len(q.missing()) > 0 {
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
			// Repeat the kick.
			e.log.Debug("namespaces not read", zap.Error(err))
			if err := pause(ctx, 3, 0); err != nil {
				return err
			}
			q.kick()
			continue
		}
		if changed {
			e.log.Info("the served namespaces or callables have changed", zap.Strings("namespaces", q.wanted()), zap.Strings("missing", q.missing()),
				zap.Int("callables", len(q.callables())))
		}
		if topics := q.topics(); changed || !slices.Equal(topics, q.listened) {
			q.listened = topics
			e.cfg.OnTopics(ctx, topics)
			e.BeatSoon() // reports the new offer
		}
	}
}
