package rest

import (
	"sync"
	"time"
)

// refusalsEach is how often a refused request is logged of those with one code: while the
// database is away, or there is back-pressure, each of thousands is refused for one cause.
const refusalsEach = 10 * time.Second

// refusals decides which refused requests are logged. The zero value is ready for use, and
// safe for concurrent use.
type refusals struct {
	mu    sync.Mutex
	codes map[string]*loggedRefusal // by the code of the answer, of which there are few
}

type loggedRefusal struct {
	logged  time.Time
	leftOut int
}

// due reports whether a refusal is to be logged, and how many of its code were not since the
// one before.
func (r *refusals) due(code string, now time.Time) (leftOut int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.codes == nil {
		r.codes = map[string]*loggedRefusal{}
	}
	of := r.codes[code]
	if of == nil {
		of = &loggedRefusal{}
		r.codes[code] = of
	}
	if !of.logged.IsZero() && now.Sub(of.logged) < refusalsEach {
		of.leftOut++
		return 0, false
	}
	leftOut = of.leftOut
	of.logged, of.leftOut = now, 0
	return leftOut, true
}
