package pgcluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// knowsServers: a process that serves a data directory is certainly its server.
const knowsServers = true

// servesDirectory reports whether the process is the server of pgdata: a server works in its
// data directory. Without permission to look, it is assumed.
func servesDirectory(pid int, pgdata string) bool {
	cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return os.IsPermission(err)
	}
	if target, err := filepath.EvalSymlinks(pgdata); err == nil {
		pgdata = target
	}
	return cwd == pgdata
}

// isZombie reports whether the process has ended and only waits to be reaped.
func isZombie(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	// "pid (name) state …"; the name may contain anything, so look from its end.
	i := bytes.LastIndexByte(b, ')')
	return i >= 0 && i+2 < len(b) && (b[i+2] == 'Z' || b[i+2] == 'X')
}
