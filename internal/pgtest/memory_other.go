//go:build !linux

package pgtest

// roomy is for systems that have a file system in memory.
func roomy(string) bool { return false }
