package engine

import (
	"math"
	"sync"
	"time"
)

// MaxProgress bounds the message of a progress report, in bytes.
const MaxProgress = 500

// progressLogInterval is how often one execution's progress is logged.
const progressLogInterval = time.Second

// Progress is the latest progress reported by a handler.
type Progress struct {
	mu       sync.Mutex
	fraction float64
	message  string
	logged   time.Time
}

// Set stores a report and reports whether to log it.
func (p *Progress) Set(fraction float64, message string) bool {
	if math.IsNaN(fraction) {
		fraction = 0
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fraction, p.message = min(max(fraction, 0), 1), Clip(message, MaxProgress)
	if !p.logged.IsZero() && now.Sub(p.logged) < progressLogInterval {
		return false
	}
	p.logged = now
	return true
}

// Get returns the latest report.
func (p *Progress) Get() (fraction float64, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fraction, p.message
}
