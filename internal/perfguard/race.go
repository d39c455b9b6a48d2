//go:build race

package perfguard

// raceAllowance covers the effects of the race detector: sync.Pool forgets at random, and
// the compiler inlines less.
const raceAllowance = 1.3
