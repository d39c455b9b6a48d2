package pgtest

import (
	"os"
	"path/filepath"
)

// memory is a file system in memory. Making and dropping a database there takes
// a quarter of what it takes on a disk, counted in CPU time: each is 300 files.
const memory = "/dev/shm"

// What must be free for servers to keep their data in memory, in bytes: what a
// run of all tests takes up, and as much again for the tests themselves.
const (
	roomInMemory    = 4 << 30
	memoryAvailable = 8 << 30
)

// dataRoot is the directory below which servers keep their data: TMPDIR where
// that is set, else in memory if there is room, "" for the system's own.
func dataRoot() string {
	if os.Getenv("TMPDIR") == "" && roomy(memory) {
		return memory
	}
	return ""
}

// root is dataRoot for a directory that is shared: once it has been made, every
// process looks for it there, however little room the tests have left.
func root(name string) string {
	if _, err := os.Lstat(filepath.Join(memory, name)); err == nil && os.Getenv("TMPDIR") == "" {
		return memory
	}
	if dir := dataRoot(); dir != "" {
		return dir
	}
	return os.TempDir()
}
