package worker

import (
	"math"
	"sync"
	"time"
	"unicode/utf8"
)

// maxProgress bounds the message of a progress report, in bytes.
const maxProgress = 500

// progressLogInterval is how often one execution's progress is logged.
const progressLogInterval = time.Second

// progress is the latest progress reported by a handler.
type progress struct {
	mu       sync.Mutex
	fraction float64
	message  string
	logged   time.Time
}

// set stores a report and reports whether to log it.
func (p *progress) set(fraction float64, message string) bool {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fraction, p.message = min(max(fraction, 0), 1), clip(message, maxProgress)
	if !p.logged.IsZero() && now.Sub(p.logged) < progressLogInterval {
		return false
	}
	p.logged = now
	return true
}

func (p *progress) get() (fraction float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fraction, p.message
}

// clip cuts s to at most n bytes at a character boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
