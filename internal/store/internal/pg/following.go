package pg

import (
	"sync"

	"github.com/tasker-go/tasker/signal"
)

// following is whether clients follow transitions and namespaces want results, as far as
// this process knows. It is safe for concurrent use.
type following struct {
	mu      sync.Mutex
	known   bool
	results bool
	begun   int // how often it began here
}

// Begun notes that this process has begun to follow.
func (f *following) Begun() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.begun = true, f.begun+1
}

// Ask comes before a query for {watched}. It returns what notes the answer, unless that is
// older than what this process has begun to follow since.
func (f *following) Ask() (note func(watched int)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.begun
	return func(watched int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.results = watched > 1
		if followed := watched%2 > 0; followed || f.begun == before {
			f.known = followed
		}
	}
}

// Results reports whether the ends of tasks may be domain events.
func (f *following) Results() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.results
}

// WithTransitions adds the signal of transitions to those of a transaction that records some.
func (s *DB) WithTransitions(signals []signal.Signal) []signal.Signal {
	s.Following.mu.Lock()
	defer s.Following.mu.Unlock()
	if s.Following.known {
		signals = append(signals, signal.Signal{Topic: signal.TopicTransitions})
	}
	return signals
}
