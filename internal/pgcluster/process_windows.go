package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"
)

// On Windows the server runs as the user of this process and is reached over loopback only.
// PostgreSQL refuses a user with administrative rights.

// knowsServers: see servesDirectory.
const knowsServers = false

// sockets: access to a Unix socket there is not that of its directory.
const sockets = false

type account struct{}

func serverAccount() (*account, error)      { return nil, nil }
func (a *account) own(string) error         { return nil }
func (a *account) ownerOf(string) error     { return nil }
func (a *account) canReach(string) error    { return nil }
func (a *account) tempDir() (string, error) { return TempDir() }
func ownedByUs(os.FileInfo) bool            { return true } // the directory of temporary files is the user's own
func (a *account) owns(os.FileInfo) bool    { return true }
func servesDirectory(int, string) bool      { return true }
func sysProcAttr(*account, bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

var errLocked = errors.New("locked by another process")

// UnreachableError is never returned on this system.
type UnreachableError struct{ Path, Closed, User string }

// Error implements error.
func (e *UnreachableError) Error() string { return e.Path + " cannot be reached" }

// TempDir is the directory for temporary files.
func TempDir() (string, error) { return filepath.Abs(os.TempDir()) }

// SuggestDataDir returns the wish, made absolute.
func SuggestDataDir(wish string) (dir, reason string, err error) {
	dir, err = filepath.Abs(wish)
	return dir, "", err
}

// unlockFile gives a lock back and closes its file.
func unlockFile(f *os.File) { _ = f.Close() }

// tryLock takes the exclusive lock on a file, creating it, until unlockFile or the end of the process.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &windows.Overlapped{})
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		err = errLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// processAlive reports whether a process with this number has not ended.
func processAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return errors.Is(err, windows.ERROR_ACCESS_DENIED)
	}
	defer func() { _ = windows.CloseHandle(h) }()
	state, err := windows.WaitForSingleObject(h, 0)
	return err == nil && state == uint32(windows.WAIT_TIMEOUT)
}

// numberTaken reports whether a process has this number.
func numberTaken(pid int) bool { return processAlive(pid) }

// cleanEnv is the environment of the server programs, without settings of libpq or PostgreSQL.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(strings.ToUpper(kv), "PG") {
			env = append(env, kv)
		}
	}
	return env
}

// startDetached: a server that outlives this process is for tests, on other systems.
func startDetached(context.Context, command) (*process, error) {
	return nil, errors.New("a detached server cannot run on Windows")
}

// kill sends a signal: PostgreSQL has them there too, through its own program.
func (p *process) kill(sig syscall.Signal) error {
	if sig == syscall.SIGKILL {
		found, err := os.FindProcess(p.pid)
		if err == nil {
			err = found.Kill()
		}
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	}
	name := map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT"}[sig]
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.bin.Program("pg_ctl"), "kill", name, fmt.Sprint(p.pid))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
