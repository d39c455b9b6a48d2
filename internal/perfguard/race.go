//go:build race

package perfguard

// raceAllowance makes room for what the race detector changes: sync.Pool
// forgets at random, and the compiler inlines less.
const raceAllowance = 1.25
