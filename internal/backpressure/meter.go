package backpressure

import (
	"math"
	"time"
)

// meter turns a counter into a rate: the exponentially weighted average in which a reading
// one window older weighs e times less. It is not safe for concurrent use.
type meter struct {
	window time.Duration

	at    time.Time // of the latest reading; zero: none
	total uint64
	// counted and seconds are the decayed count and time. Their quotient is the right
	// rate from the second reading on, where a plain moving average would begin at 0.
	counted, seconds float64
}

// read takes a reading of the counter. A counter that has decreased was restarted, and a
// gap longer than a window says nothing about the rate under load: either way measuring
// begins anew.
func (m *meter) read(total uint64, now time.Time) {
	gap := now.Sub(m.at)
	switch {
	case m.at.IsZero() || total < m.total || gap > m.window:
		m.counted, m.seconds = 0, 0
	case gap <= 0:
		return
	default:
		fade := math.Exp(-gap.Seconds() / m.window.Seconds())
		m.counted = m.counted*fade + float64(total-m.total)
		m.seconds = m.seconds*fade + gap.Seconds()
	}
	m.at, m.total = now, total
}

// rate is per second; 0 where it is unknown.
func (m *meter) rate() float64 {
	if m.seconds <= 0 {
		return 0
	}
	return m.counted / m.seconds
}
