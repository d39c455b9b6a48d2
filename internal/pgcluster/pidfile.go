package pgcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// pidFile is the content of postmaster.pid, line by line: pid, data directory,
// start time, port, socket directory, listen address, shared memory, state.
type pidFile struct {
	pid       int
	port      int
	socketDir string
	lines     []string
}

func pidFilePath(pgdata string) string { return filepath.Join(pgdata, "postmaster.pid") }

// readPidFile reads postmaster.pid; os.ErrNotExist when there is none.
func readPidFile(pgdata string) (pidFile, error) {
	b, err := os.ReadFile(pidFilePath(pgdata))
	if err != nil {
		return pidFile{}, fmt.Errorf("read postmaster.pid: %w", err)
	}
	pf := pidFile{lines: strings.Split(string(b), "\n")}
	if pf.pid, err = strconv.Atoi(strings.TrimSpace(pf.lines[0])); err != nil {
		return pidFile{}, fmt.Errorf("read postmaster.pid: %w", err)
	}
	if len(pf.lines) > 4 {
		// A starting server has not written these yet.
		pf.port, _ = strconv.Atoi(strings.TrimSpace(pf.lines[3]))
		pf.socketDir = strings.TrimSpace(pf.lines[4])
	}
	return pf, nil
}

// running reports whether the process named in the file is alive and the server of this data
// directory; its number may have been reused.
func (pf pidFile) running(pgdata string) bool {
	return processAlive(pf.pid) && servesDirectory(pf.pid, pgdata)
}

// serverPID returns the pid of the server that runs on pgdata, 0 for none.
func serverPID(pgdata string) int {
	pf, err := readPidFile(pgdata)
	if err != nil || !pf.running(pgdata) {
		return 0
	}
	return pf.pid
}

// recoverPidFile rejects a data directory in use and cleans up after a killed server.
//
// A file that names a dead process is left to PostgreSQL, which checks first that none of
// the old server's children still use its shared memory. A file whose number now belongs to
// an unrelated process would make PostgreSQL refuse; the number is replaced by ours, which
// it recognizes as its parent's and ignores, and the check of the shared memory still
// applies.
func (c *Cluster) recoverPidFile() error {
	pf, err := readPidFile(c.pgdata())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if pf.running(c.pgdata()) {
		return &AlreadyRunningError{DataDir: c.dataDir, PID: pf.pid}
	}
	if !processAlive(pf.pid) {
		return nil
	}
	pf.lines[0] = strconv.Itoa(os.Getpid())
	path := pidFilePath(c.pgdata())
	if err := os.WriteFile(path, []byte(strings.Join(pf.lines, "\n")), 0o600); err != nil {
		return fmt.Errorf("recover postmaster.pid: %w", err)
	}
	return nil
}
