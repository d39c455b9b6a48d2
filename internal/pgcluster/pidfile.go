package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
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

// detachedFile marks a data directory whose server has no owner.
const detachedFile = "detached"

// orphanPatience is how long a start waits for the server of an owner that was killed. Its orderly end takes moments,
// with much to write seconds.
const orphanPatience = 15 * time.Second

// awaitOrphan waits for the end of a server whose owner has ended without stopping it, as the lock says that this
// process has. The kernel has told it to end, if it can; one that does not is ended here, so that the next start
// needs no help.
func (c *Cluster) awaitOrphan(ctx context.Context) error {
	pid := serverPID(c.pgdata())
	if _, err := os.Lstat(filepath.Join(c.dataDir, detachedFile)); pid == 0 || err == nil {
		return nil // recoverPidFile rejects a detached one
	}
	c.tell("Waiting for the PostgreSQL of an earlier run to end.")
	server := &process{pid: pid}
	bounded, cancel := context.WithTimeout(ctx, orphanPatience)
	defer cancel()
	if err := server.wait(bounded); err == nil || ctx.Err() != nil {
		return err
	}
	if knowsServers {
		server.end(syscall.SIGQUIT)
	}
	return nil
}

// noteOwnership says to the next start whether the server ends with its owner.
func (c *Cluster) noteOwnership() error {
	path := filepath.Join(c.dataDir, detachedFile)
	err := os.Remove(path)
	if c.opts.Detached {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("note who owns the server: %w", err)
	}
	return nil
}

// recoverPidFile rejects a data directory in use and cleans up after a killed server.
//
// A file that names a dead process is left to PostgreSQL, which checks first that none of
// the old server's children still use its shared memory. A file whose number now belongs to
// an unrelated process, or to a killed server that its parent has not waited for, would make
// PostgreSQL refuse; the number is replaced by ours, which
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
	if !numberTaken(pf.pid) {
		return nil
	}
	pf.lines[0] = strconv.Itoa(os.Getpid())
	path := pidFilePath(c.pgdata())
	if err := os.WriteFile(path, []byte(strings.Join(pf.lines, "\n")), 0o600); err != nil {
		return fmt.Errorf("recover postmaster.pid: %w", err)
	}
	return nil
}
