//go:build unix && !linux

package pgcluster

// These systems have no signal for the death of a parent; a server left behind
// is found by its pid file.

// servesDirectory cannot be told here without asking the server; a living
// process of that number is taken for it, which errs on the safe side.
func servesDirectory(int, string) bool { return true }

// isZombie cannot be told here.
func isZombie(int) bool { return false }
