//go:build unix

package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/pgcluster"
)

// format is raised when the layout of the shared directory changes.
const format = "1"

// idleLimit is how long the shared server stays without a test process.
const idleLimit = 30 * time.Second

// The shared directory, one per user, host, settings and version of PostgreSQL:
//
//	start.lock        held while finding, starting or replacing the server
//	current           name of the instance directory in use
//	instance-…/       one server: data directory of pgcluster and clients/
//	instance-…/clients/<pid>   one file per test process that uses it
//
// The watchdog of an instance closes it by renaming clients/ away; a process that cannot
// put a file there knows that the server is stopping and starts another.

// sharedCluster returns the running shared server, registered for this process.
func sharedCluster(ctx context.Context) (*pgcluster.Cluster, error) {
	base, err := sharedDir()
	if err != nil {
		return nil, err
	}
	return joinOrStart(ctx, base, idleLimit)
}

func joinOrStart(ctx context.Context, base string, idle time.Duration) (*pgcluster.Cluster, error) {
	if c, err := join(ctx, base); err == nil {
		return c, nil // the usual case, without a lock
	}
	unlock, err := lock(ctx, filepath.Join(base, "start.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if c, err := join(ctx, base); err == nil {
		return c, nil
	}
	return startShared(ctx, base, idle)
}

// sharedDir returns the shared directory, made on first use, and rejects one that another
// user has put in its place.
func sharedDir() (string, error) {
	settings, err := json.Marshal(Settings()) // sorted by key
	if err != nil {
		return "", fmt.Errorf("encode settings: %w", err)
	}
	// Containers may share /tmp but do not see each other's processes.
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("ask for the host's name: %w", err)
	}
	sum := sha256.Sum256(append(settings, format+host+os.Getenv(pgcluster.BinEnv)+os.Getenv(pgcluster.VersionEnv)...))
	name := fmt.Sprintf("tasker-pgtest-%d-%s", os.Geteuid(), hex.EncodeToString(sum[:4]))
	dir, reason, err := pgcluster.SuggestDataDir(filepath.Join(root(name), name))
	if err != nil {
		return "", fmt.Errorf("choose the shared directory: %w (%s)", err, reason)
	}
	// Passable, because as root the server runs as another user.
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) { //nolint:gosec // see above
		return "", fmt.Errorf("make the shared directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", fmt.Errorf("look at the shared directory: %w", err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s is not a directory of our own; remove it", dir)
	}
	return dir, nil
}

// join registers this process with the current instance and attaches to it.
func join(ctx context.Context, base string) (*pgcluster.Cluster, error) {
	b, err := os.ReadFile(filepath.Join(base, "current"))
	if err != nil {
		return nil, fmt.Errorf("find the shared server: %w", err)
	}
	dir := filepath.Join(base, filepath.Base(string(b)))
	if err := register(dir); err != nil {
		return nil, err
	}
	return pgcluster.Attach(ctx, dir)
}

// register registers this process as a user of the instance. The file is never removed: it
// stops counting when the process has ended.
func register(dir string) error {
	path := filepath.Join(dir, "clients", strconv.Itoa(os.Getpid()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("register with the shared server: %w", err)
	}
	return f.Close()
}

// startShared starts a new instance. The caller holds start.lock.
func startShared(ctx context.Context, base string, idle time.Duration) (*pgcluster.Cluster, error) {
	removeDead(ctx, base)
	dir, err := os.MkdirTemp(base, "instance-")
	if err != nil {
		return nil, fmt.Errorf("make an instance directory: %w", err)
	}
	c, err := pgcluster.Start(ctx, pgcluster.Options{
		DataDir: dir, Detached: true, Settings: Settings(), StartTimeout: startTimeout, NoSync: true,
	})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start the shared PostgreSQL: %w", err)
	}
	err = errors.Join(os.Mkdir(filepath.Join(dir, "clients"), 0o700), register(dir), watch(ctx, dir, c, idle), tuneTemplate(ctx, c))
	if err == nil {
		tmp := filepath.Join(base, "current.new")
		err = errors.Join(os.WriteFile(tmp, []byte(filepath.Base(dir)), 0o600), os.Rename(tmp, filepath.Join(base, "current")))
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("share PostgreSQL: %w", err), c.Stop(ctx), os.RemoveAll(dir))
		return nil, err
	}
	return c, nil
}

// exists reports whether a process exists. The server has been orphaned, so it leaves no
// zombie.
func exists(pid int) bool {
	err := syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

// removeDead removes instances whose server has ended unnoticed by their watchdog, as after
// a reboot.
func removeDead(ctx context.Context, base string) {
	dirs, err := filepath.Glob(filepath.Join(base, "instance-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		_, err := pgcluster.Attach(ctx, dir)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrProcessDone) {
			_ = os.RemoveAll(dir)
		}
	}
}

// tuneTemplate freezes the database that every empty one is copied from.
func tuneTemplate(ctx context.Context, c *pgcluster.Cluster) error {
	conn, err := pgx.Connect(ctx, c.SocketDSN("template1"))
	if err != nil {
		return fmt.Errorf("connect to template1: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "VACUUM (FREEZE, ANALYZE)"); err != nil {
		return fmt.Errorf("vacuum template1: %w", err)
	}
	return nil
}

// watchdog is the script that stops an unused instance. Arguments: the instance directory,
// the server's pid, the seconds of idleness, the socket directory. It needs only a POSIX
// shell.
const watchdog = `
dir=$1 pid=$2 limit=$3 socket=$4 idle=0
in_use() {
	for f in "$1"/*; do
		[ -e "$f" ] || continue
		kill -0 "${f##*/}" 2>/dev/null && return 0
		rm -f "$f"
	done
	return 1
}
while kill -0 "$pid" 2>/dev/null && [ -d "$dir/clients" ]; do
	sleep 1
	if in_use "$dir/clients"; then idle=0; continue; fi
	idle=$((idle + 1))
	[ "$idle" -ge "$limit" ] || continue
	mv "$dir/clients" "$dir/closing"
	in_use "$dir/closing" || break
	mv "$dir/closing" "$dir/clients"
	idle=0
done
for signal in INT QUIT KILL; do
	kill -s $signal "$pid" 2>/dev/null || break
	n=0
	while [ -e "$dir/pgdata/postmaster.pid" ] && [ $n -lt 10 ]; do sleep 1; n=$((n + 1)); done
	[ -e "$dir/pgdata/postmaster.pid" ] || break
done
rm -rf "$dir" "$socket"
`

// watch starts the watchdog of an instance, in a session of its own and without our open
// files: `go test` waits for everything that holds its output.
func watch(ctx context.Context, dir string, c *pgcluster.Cluster, idle time.Duration) error {
	u, err := pgx.ParseConfig(c.SocketDSN(pgcluster.Superuser))
	if err != nil {
		return fmt.Errorf("find the socket: %w", err)
	}
	script := "(" + strings.TrimSpace(watchdog) + "\n) </dev/null >/dev/null 2>&1 &"
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, "tasker-pgtest-watchdog",
		dir, strconv.Itoa(c.PID()), strconv.Itoa(int(idle.Seconds())), u.Host)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start the watchdog: %w", err)
	}
	return nil
}

// lock waits for the exclusive lock on a file until ctx ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		t := time.NewTimer(20 * time.Millisecond) // takes time: between two attempts
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			_ = f.Close()
			return nil, fmt.Errorf("wait for lock %s: %w", path, context.Cause(ctx))
		}
	}
}
