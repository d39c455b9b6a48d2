package pgcluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	passwordFile = "password"
	lockFile     = "lock"

	// ephemeralPrefix begins the name of every temporary data directory.
	ephemeralPrefix = "tasker-pg-"
	// maxLogBytes is the size from which a log is set aside at start.
	maxLogBytes = 16 << 20
	// logTailBytes is how much of the log an error carries.
	logTailBytes = 4 << 10
)

// prepareDir resolves, creates and locks the data directory.
func (c *Cluster) prepareDir() error {
	dir, err := c.chooseDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		return fmt.Errorf("%s is a PostgreSQL data directory that was not made by Tasker; it is left alone, choose another directory", dir)
	}
	if err := c.runAs.canReach(filepath.Dir(dir)); err != nil {
		return err
	}
	// The server's user must pass through, but not list, our directories.
	mode := os.FileMode(0o700)
	if c.runAs != nil {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("set mode of data directory: %w", err)
	}
	c.dataDir = dir
	lock, err := tryLock(filepath.Join(dir, lockFile))
	if errors.Is(err, errLocked) {
		// Not ours: abandon must not remove it.
		c.dataDir = ""
		return &AlreadyRunningError{DataDir: dir, PID: serverPID(filepath.Join(dir, "pgdata")),
			Owner: ownerOfLock(filepath.Join(dir, lockFile))}
	}
	if err != nil {
		return err
	}
	c.lock = lock
	return c.signLock()
}

// signLock writes into the lock who has it, for the message of the next that wants it.
func (c *Cluster) signLock() error {
	err := c.lock.Truncate(0)
	if err == nil {
		_, err = c.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	if err != nil {
		return fmt.Errorf("sign the lock: %w", err)
	}
	return nil
}

// ownerOfLock is the process that has a lock; 0: not known.
func ownerOfLock(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0 // Windows does not let others read it
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || !processAlive(pid) {
		return 0 // it has yet to sign
	}
	return pid
}

// chooseDir returns the absolute data directory; a temporary one is created.
func (c *Cluster) chooseDir() (string, error) {
	if c.opts.DataDir == "" {
		if !c.opts.Ephemeral {
			return "", errors.New("start PostgreSQL: a data directory is needed")
		}
		base := c.opts.TempDir
		if base == "" {
			var err error
			if base, err = c.runAs.tempDir(); err != nil {
				return "", err
			}
		}
		sweepEphemeral(base)
		dir, err := os.MkdirTemp(base, ephemeralPrefix)
		if err != nil {
			return "", fmt.Errorf("create temporary data directory: %w", err)
		}
		return dir, nil
	}
	dir, err := filepath.Abs(c.opts.DataDir)
	if err != nil {
		return "", fmt.Errorf("resolve data directory: %w", err)
	}
	if c.opts.Ephemeral {
		if _, err := os.Lstat(dir); err == nil {
			return "", fmt.Errorf("%s exists already; an ephemeral cluster removes its directory, so it only takes a new one", dir)
		}
	}
	return dir, nil
}

// sweepEphemeral removes temporary clusters whose owner died without stopping them. Best
// effort: clusters in use are locked, brand new ones are left alone.
func sweepEphemeral(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, ephemeralPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !ownedByUs(info) || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := tryLock(filepath.Join(dir, lockFile))
		if err != nil {
			continue
		}
		if serverPID(filepath.Join(dir, "pgdata")) == 0 {
			removeOldSocketDir(dir)
			_ = os.RemoveAll(dir)
		}
		unlockFile(lock)
	}
}

// chooseBinaries returns the wanted binaries, checked against the version of
// an existing data directory.
func (c *Cluster) chooseBinaries(ctx context.Context) (Binaries, error) {
	wanted, pgdata := c.opts.Binaries, c.pgdata()
	b, err := os.ReadFile(filepath.Join(pgdata, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		if wanted.Dir != "" {
			return wanted, nil
		}
		return Find(ctx, 0, c.tell)
	}
	if err != nil {
		return Binaries{}, fmt.Errorf("read the version of the data directory: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return Binaries{}, fmt.Errorf("read the version of the data directory %s: %w", pgdata, err)
	}
	if wanted.Dir == "" {
		return Find(ctx, major, c.tell)
	}
	if wanted.Major != major {
		return Binaries{}, fmt.Errorf("the data in %s belongs to PostgreSQL %d, the programs in %s are version %s", pgdata, major, wanted.Dir, wanted.Version)
	}
	return wanted, nil
}

// makeData creates the data directory unless it exists. It works beside the final place and
// renames, so an interrupted run leaves no incomplete directory.
func (c *Cluster) makeData(ctx context.Context) error {
	if _, err := os.Lstat(c.pgdata()); err == nil && c.opts.Fill != nil {
		return fmt.Errorf("fill %s: want a directory without data", c.dataDir)
	}
	if _, err := os.Stat(filepath.Join(c.pgdata(), "PG_VERSION")); err == nil {
		return c.runAs.ownerOf(c.pgdata())
	}
	making := c.pgdata() + ".new"
	if err := c.emptyDir(making); err != nil {
		return err
	}
	fill := c.opts.Fill
	if fill == nil {
		fill = c.initdb
	}
	if err := fill(ctx, making); err != nil {
		_ = os.RemoveAll(making)
		return fmt.Errorf("create the database cluster in %s: %w", c.dataDir, err)
	}
	if err := os.Rename(making, c.pgdata()); err != nil {
		return fmt.Errorf("put the new data directory in place: %w", err)
	}
	return nil
}

// emptyDir makes a directory of the server's account; what an interrupted run left there
// goes.
func (c *Cluster) emptyDir(dir string) error {
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	return c.runAs.own(dir)
}

// initdb fills a data directory for a new cluster.
func (c *Cluster) initdb(ctx context.Context, dir string) error {
	pwfile := filepath.Join(c.dataDir, passwordFile+".new")
	defer func() { _ = os.Remove(pwfile) }()
	if err := os.WriteFile(pwfile, []byte(c.password), 0o600); err != nil {
		return fmt.Errorf("write password for initdb: %w", err)
	}
	if err := c.runAs.own(pwfile); err != nil {
		return err
	}
	initdb := func(locale string) error {
		return c.runInitdb(ctx, "-D", dir, "-U", Superuser, "--pwfile", pwfile, "--encoding", "UTF8", "--locale", locale,
			"--auth-local", "trust", "--auth-host", "scram-sha-256")
	}
	// Both sort by bytes; C.UTF-8 also knows letters beyond ASCII, but not every system has
	// it.
	err := initdb("C.UTF-8")
	if err != nil && strings.Contains(err.Error(), "invalid locale") {
		if err := c.emptyDir(dir); err != nil {
			return err
		}
		return initdb("C")
	}
	return err
}

// runInitdb runs initdb until it ends. The error carries what it printed.
func (c *Cluster) runInitdb(ctx context.Context, args ...string) error {
	if c.opts.Ephemeral || c.opts.NoSync {
		args = append(args, "--no-sync")
	}
	if c.opts.WALDir != "" {
		args = append(args, "--waldir="+c.opts.WALDir)
	}
	cmd := exec.CommandContext(ctx, c.bin.Program("initdb"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.dataDir, cleanEnv(), sysProcAttr(c.runAs, false)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up after itself
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// loadOrCreatePassword returns the superuser's password of a data directory: the one kept
// there, else the wanted one, else a random one, which is kept.
func loadOrCreatePassword(path, wanted string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return string(b), nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("read password: %w", err)
	}
	password := cmp.Or(wanted, rand.Text())
	if err := os.WriteFile(path, []byte(password), 0o600); err != nil {
		return "", fmt.Errorf("keep password: %w", err)
	}
	return password, nil
}

// openLog opens the log for appending and rotates a large one.
func (c *Cluster) openLog() (*os.File, error) {
	path := c.LogFile()
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("set the log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	return f, nil
}

// logTail returns the end of the log since the offset.
func (c *Cluster) logTail(from int64) []byte {
	f, err := os.Open(c.LogFile())
	if err != nil {
		return []byte(err.Error())
	}
	defer func() { _ = f.Close() }()
	if end, err := f.Seek(0, io.SeekEnd); err == nil && end-logTailBytes > from {
		from = end - logTailBytes
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, logTailBytes))
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
