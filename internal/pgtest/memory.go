package pgtest

import (
	"os"
	"path/filepath"
)

// memory is a file system in memory. Making and dropping a database there takes a quarter of
// the CPU time that it takes on a disk: each is 300 files.
const memory = "/dev/shm"

// The free space required for data in memory, in bytes: the need of a run of all tests, and
// as much again for the tests themselves.
const (
	roomInMemory    = 4 << 30
	memoryAvailable = 8 << 30
)

// dataRoot is the directory for the data of servers: TMPDIR if set, else in memory if there
// is room, "" for the system's own.
func dataRoot() string {
	if os.Getenv("TMPDIR") == "" && roomy(memory) {
		return memory
	}
	return ""
}

// root is dataRoot for a shared directory: once it has been made, every process uses it,
// however little room is left.
func root(name string) string {
	if _, err := os.Lstat(filepath.Join(memory, name)); err == nil && os.Getenv("TMPDIR") == "" {
		return memory
	}
	if dir := dataRoot(); dir != "" {
		return dir
	}
	return os.TempDir()
}
