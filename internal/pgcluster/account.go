//go:build unix

package pgcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the unprivileged user the server runs as when this process is root. A nil
// account is the user of this process; every method accepts it and then does nothing.
type account struct {
	name     string
	uid, gid uint32
}

// UnreachableError says that the server's user cannot get to a directory
// because a directory above it is closed to others.
type UnreachableError struct {
	// Path is the path to reach, Closed the directory in the way.
	Path, Closed string
	// User is the account the server runs as.
	User string
}

// Error implements error.
func (e *UnreachableError) Error() string {
	return fmt.Sprintf("PostgreSQL cannot run as root, so it runs as user %q, who cannot reach %s: %s is closed to other users; choose another data directory (for example below /var/tmp) or start as an ordinary user",
		e.User, e.Path, e.Closed)
}

// serverAccount chooses the account for the server: nil unless we are root.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("read the ids of user %s: %w", name, err)
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL cannot run as root and there is neither a user \"postgres\" nor \"nobody\"; start as an ordinary user")
}

// own makes the account the owner of one file or directory.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	if err := os.Chown(path, int(a.uid), int(a.gid)); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, a.name, err)
	}
	return nil
}

// ownerOf makes the account the owner of an existing data directory, so that data made under
// one user can be used after another one is chosen.
func (a *account) ownerOf(pgdata string) error {
	info, err := os.Stat(pgdata)
	if err != nil {
		return fmt.Errorf("look at data directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("look at data directory %s: no owner known", pgdata)
	}
	if a == nil {
		if int(st.Uid) != os.Geteuid() {
			return fmt.Errorf("the data in %s belongs to user id %d; it was made by another user (with sudo?), choose another directory", pgdata, st.Uid)
		}
		return nil
	}
	if st.Uid == a.uid {
		return nil
	}
	// Through a Root: the old owner must not be able to redirect us with a symbolic link
	// during the walk.
	root, err := os.OpenRoot(pgdata)
	if err != nil {
		return fmt.Errorf("open data directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, int(a.uid), int(a.gid))
	})
	if err != nil {
		return fmt.Errorf("give %s to user %s: %w", pgdata, a.name, err)
	}
	return nil
}

// canReach returns an *UnreachableError when the account may not pass through path or a
// directory above it. Missing directories are skipped.
func (a *account) canReach(path string) error {
	if a == nil {
		return nil
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && !a.mayPass(info) {
			return &UnreachableError{Path: path, Closed: dir, User: a.name}
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
		return a.canReach(target)
	}
	return nil
}

func (a *account) mayPass(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return true // unknown: the attempt will show
	}
	mode := info.Mode().Perm()
	switch {
	case st.Uid == a.uid:
		return mode&0o100 != 0
	case st.Gid == a.gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// tempDir is a directory for temporary files that the account can reach.
func (a *account) tempDir() (string, error) {
	var firstErr error
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		abs, err := filepath.Abs(dir)
		if err == nil {
			if _, err = os.Stat(abs); err == nil {
				err = a.canReach(abs)
			}
		}
		if err == nil {
			return abs, nil
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	return "", fmt.Errorf("find a temporary directory: %w", firstErr)
}

// TempDir is a directory for temporary files that a server started here can
// reach.
func TempDir() (string, error) {
	a, err := serverAccount()
	if err != nil {
		return "", err
	}
	return a.tempDir()
}

// RunAsServer makes cmd run as the account of the servers started here, in their
// environment and in a process group of its own.
func RunAsServer(cmd *exec.Cmd) error {
	a, err := serverAccount()
	if err != nil {
		return err
	}
	cmd.Env, cmd.SysProcAttr = cleanEnv(), sysProcAttr(a, true)
	return nil
}

// GiveToServer makes the account of the servers started here the owner of paths.
func GiveToServer(paths ...string) error {
	a, err := serverAccount()
	for _, path := range paths {
		err = errors.Join(err, a.own(path))
	}
	return err
}

// SuggestDataDir returns the wish itself when the server can use it, else a directory below
// /var/tmp with the reason in a sentence for the user (empty when the wish is possible).
func SuggestDataDir(wish string) (dir, reason string, err error) {
	abs, err := filepath.Abs(wish)
	if err != nil {
		return "", "", fmt.Errorf("resolve data directory: %w", err)
	}
	a, err := serverAccount()
	if err != nil {
		return "", "", err
	}
	reach := a.canReach(abs)
	var closed *UnreachableError
	if !errors.As(reach, &closed) {
		return abs, "", reach
	}
	dir = filepath.Join("/var/tmp", fmt.Sprintf("tasker-%d-%s", os.Geteuid(), filepath.Base(abs)))
	reason = fmt.Sprintf("PostgreSQL runs as user %q, who cannot enter %s; the data is kept in %s instead", closed.User, closed.Closed, dir)
	return dir, reason, nil
}

// owns reports whether a file belongs to the account.
func (a *account) owns(info os.FileInfo) bool {
	if a == nil {
		return ownedByUs(info)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Uid == a.uid
}

func ownedByUs(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// errLocked says that another process holds a lock.
var errLocked = errors.New("locked by another process")

// unlockFile gives a lock back and closes its file. Closing alone would leave the lock to a process that
// was forked meanwhile and has yet to close its copy of the file.
func unlockFile(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

// tryLock takes the exclusive lock on a file, creating it, until unlockFile or the end of the process.
func tryLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, errLocked)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}
