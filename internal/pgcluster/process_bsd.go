//go:build unix && !linux

package pgcluster

// These systems have no signal for the death of a parent; an orphaned server is found by its
// pid file.

// knowsServers: see servesDirectory.
const knowsServers = false

// servesDirectory cannot be determined here without a connection; a living process of that
// number is assumed to be the server, which errs on the safe side.
func servesDirectory(int, string) bool { return true }

// isZombie cannot be determined here.
func isZombie(int) bool { return false }
