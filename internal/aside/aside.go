package aside

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/telemetry"
)

const (
	// base and most bound the time for which a row is set aside; it doubles with each
	// rejection.
	base = time.Second
	most = time.Minute
	// blameFrom is the number of rejections from which a row may be blamed.
	blameFrom = 3
	// maxKeys bounds the rows that a Set remembers; a row beyond it is tried each time.
	maxKeys = 10_000
	// maxCulprits is how many rows in a row Halves finds rejected before it takes the
	// statement, and not its rows, to be at fault.
	maxCulprits = 16
)

// Set is the rows that one flow leaves out, by their keys. It is safe for concurrent use.
type Set[K comparable] struct {
	flow     string
	log      *zap.Logger
	held     prometheus.Gauge
	rejected prometheus.Counter
	now      func() time.Time

	mu     sync.Mutex
	keys   map[K]rejection
	passed time.Time // when rows of the flow passed last
	swept  time.Time // when rows that others have handled were forgotten last
}

// rejection is the record of a row.
type rejection struct {
	since, until time.Time
	tries        int
}

// New returns an empty Set of a flow, which is a label of the metrics and a field of the log.
func New[K comparable](flow string, log *zap.Logger, metrics *telemetry.Metrics) *Set[K] {
	metrics = metrics.OrDiscard()
	return &Set[K]{flow: flow, log: log, held: metrics.RowsSetAside.WithLabelValues(flow),
		rejected: metrics.RowsRejected.WithLabelValues(flow), now: time.Now, keys: map[K]rejection{}}
}

// Reject sets a row aside, and logs it with fields that name its task and callable. It reports
// whether the row is to blame: it was rejected at least three times, and others have passed
// since the first time.
func (s *Set[K]) Reject(key K, why error, fields ...zap.Field) (blamed bool) {
	r, blamed := s.reject(key)
	s.log.Error("the database rejects a row, which is set aside", append(fields, zap.String("flow", s.flow),
		zap.Int("rejections", r.tries), zap.Time("until", r.until), zap.Error(why))...)
	return blamed
}

// Fail counts and logs a row that the database rejects and that is not set aside, because its flow
// has handled it: its step has failed, or the like.
func (s *Set[K]) Fail(why error, fields ...zap.Field) {
	s.rejected.Inc()
	s.log.Error("the database rejects a row, which has failed", append(fields, zap.String("flow", s.flow), zap.Error(why))...)
}

func (s *Set[K]) reject(key K) (r rejection, blamed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.dropLocked(now)
	r, known := s.keys[key]
	if !known {
		r.since = now
	}
	r.tries++
	r.until = now.Add(min(base<<min(r.tries-1, 10), most))
	if known || len(s.keys) < maxKeys {
		s.keys[key] = r
	}
	s.held.Set(float64(len(s.keys)))
	s.rejected.Inc()
	return r, r.tries >= blameFrom && s.passed.After(r.since)
}

// Pass notes that rows of the flow were handled, and forgets those that were set aside.
func (s *Set[K]) Pass(keys ...K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passed = s.now()
	for _, key := range keys {
		delete(s.keys, key)
	}
	s.held.Set(float64(len(s.keys)))
}

// Holds reports whether a row is left out now.
func (s *Set[K]) Holds(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.keys[key].until)
}

// Knows reports whether a row was rejected and has not passed since.
func (s *Set[K]) Knows(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.keys[key]
	return known
}

// Tries is how often a row was rejected since it passed last.
func (s *Set[K]) Tries(key K) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key].tries
}

// Left is for how long a row is still left out; 0: it is not.
func (s *Set[K]) Left(key K) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.keys[key].until.Sub(s.now()), 0)
}

// Since is for how long rows have been rejected and none has passed; 0: none is set aside, or one
// has passed since.
func (s *Set[K]) Since() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.dropLocked(now)
	since := time.Duration(0)
	for _, r := range s.keys {
		if r.since.After(s.passed) {
			since = max(since, now.Sub(r.since))
		}
	}
	return since
}

// Held returns the rows that are left out now, at most 10,000, in no order; nil: none.
func (s *Set[K]) Held() (held []K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.dropLocked(now)
	for key, r := range s.keys {
		if now.Before(r.until) {
			held = append(held, key)
		}
	}
	return held
}

// Next returns when the first row may be tried again, at least a second from now; 0: none is
// set aside.
func (s *Set[K]) Next() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.dropLocked(now)
	if len(s.keys) == 0 {
		return 0
	}
	first := slices.MinFunc(slices.Collect(maps.Values(s.keys)), func(a, b rejection) int { return a.until.Compare(b.until) })
	return max(first.until.Sub(now), base)
}

// dropLocked forgets rows that were not found when they were due: others have handled them. It looks at all of them
// once a second at most.
func (s *Set[K]) dropLocked(now time.Time) {
	if now.Sub(s.swept) < base {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.keys, func(_ K, r rejection) bool { return now.Sub(r.until) > most })
	s.held.Set(float64(len(s.keys)))
}

// Left returns what logs and counts a row that a flow leaves out without a Set, such as one that is
// only read. row names it.
func Left(log *zap.Logger, metrics *telemetry.Metrics) func(flow, row string, why error) {
	metrics = metrics.OrDiscard()
	return func(flow, row string, why error) {
		metrics.RowsRejected.WithLabelValues(flow).Inc()
		log.Error("the database rejects a row, which is left out", zap.String("flow", flow), zap.String("row", row), zap.Error(why))
	}
}

// Apart runs a statement over all items and, where it is rejected, over halves of them, see Halves.
func Apart[T any](items []T, rejected func(error) bool, run func(part []T) error, alone func(item T, why error)) error {
	err := run(items)
	if err == nil || !rejected(err) {
		return err
	}
	return Halves(items, err, rejected, run, alone)
}

// Halves runs a statement, which was rejected over all items for the reason why, over halves of
// them. alone is called for each item that is rejected on its own, with the reason. The error
// is the first for which rejected is false, or the latest rejection once 16 items in a row were
// rejected and none has passed: then the statement is at fault, and the rest is not tried.
func Halves[T any](items []T, why error, rejected func(error) bool, run func(part []T) error, alone func(item T, why error)) error {
	h := halving[T]{rejected, run, alone, 0, false}
	return h.split(items, why)
}

type halving[T any] struct {
	rejected func(error) bool
	run      func(part []T) error
	alone    func(item T, why error)
	culprits int
	passed   bool
}

func (h *halving[T]) split(items []T, why error) error {
	if len(items) == 0 {
		return nil
	}
	if len(items) == 1 {
		h.culprits++
		h.alone(items[0], why)
		if !h.passed && h.culprits >= maxCulprits {
			return fmt.Errorf("%d rows were rejected and none passed: %w", h.culprits, why)
		}
		return nil
	}
	for _, part := range [][]T{items[:len(items)/2], items[len(items)/2:]} {
		err := h.run(part)
		switch {
		case err == nil:
			h.passed = true
		case !h.rejected(err):
			return err
		default:
			if err := h.split(part, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// ByPosition runs a statement over up to limit rows of a list that it makes shorter, behind the
// first skip of them. Where the database rejects it, it runs over fewer rows, and a row that is
// rejected on its own is left out: alone is called with its place, from 0 on. handled is what run
// returned in all. The error is as that of Halves.
func ByPosition(limit int, rejected func(error) bool, run func(limit, skip int) (int, error), alone func(skip int, why error)) (handled int, err error) {
	for size, skip := limit, 0; handled+skip < limit; {
		size = min(size, limit-handled-skip)
		n, err := run(size, skip)
		switch {
		case err == nil:
			handled += n
			if n < size {
				return handled, nil
			}
			size *= 2
		case !rejected(err):
			return handled, err
		case size > 1:
			size /= 2
		default:
			alone(skip, err)
			if skip++; handled == 0 && skip >= maxCulprits {
				return handled, err
			}
			size = limit
		}
	}
	return handled, nil
}
