package pgtest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// tmpfs is the magic number of that file system.
const tmpfs = 0x01021994

// roomy reports whether a directory is in memory, writable for all users, and has room.
func roomy(dir string) bool {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil || fs.Type != tmpfs {
		return false
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o777 {
		return false
	}
	return fs.Bavail*uint64(fs.Bsize) >= roomInMemory && available() >= memoryAvailable // #nosec G115 -- the size of a block
}

// available is the memory for programs without swapping, in bytes; 0 where the system does
// not report it.
func available() uint64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("MemAvailable:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseUint(string(fields[0]), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}
