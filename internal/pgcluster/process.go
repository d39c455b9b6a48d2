//go:build unix

package pgcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/internal/child"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// endTimeout bounds the wait for a process that was signalled to end at once.
const endTimeout = 5 * time.Second

// command is a program to be started as the server.
type command struct {
	path   string
	args   []string
	dir    string
	runAs  *account
	output *os.File
	// orphaned is the signal it gets if this process is killed, where the kernel supports it.
	orphaned syscall.Signal
}

// process is a running server. A child reports its end; any other process is checked by its
// number.
type process struct {
	pid  int
	done <-chan struct{} // closed when a child has ended; nil for any other process
}

// startChild starts the server as our child, in a process group of its own so
// that Ctrl-C in a terminal reaches only us and we stop the server in order.
func startChild(c command) (*process, error) {
	cmd := exec.Command(c.path, c.args...) //nolint:noctx // outlives the context it is started under
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.dir, cleanEnv(), sysProcAttr(c.runAs, true)
	cmd.Stdout, cmd.Stderr = c.output, c.output
	p, err := child.Start(cmd, c.orphaned)
	if err != nil {
		return nil, err
	}
	return &process{pid: p.PID(), done: p.Done()}, nil
}

// startDetached starts the server so that it outlives us and leaves no zombie:
// a shell puts it in the background of a session of its own and ends.
func startDetached(ctx context.Context, c command) (*process, error) {
	args := append([]string{"-c", `"$0" "$@" </dev/null >&3 2>&3 3>&- & echo $!`, c.path}, c.args...)
	cmd := exec.CommandContext(ctx, "/bin/sh", args...)
	cmd.Dir, cmd.Env = c.dir, cleanEnv()
	cmd.SysProcAttr = sysProcAttr(c.runAs, false)
	cmd.SysProcAttr.Setsid = true
	cmd.ExtraFiles = []*os.File{c.output}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, stderr.Bytes())
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return nil, fmt.Errorf("read the process id: %w", err)
	}
	return &process{pid: pid}, nil
}

func (p *process) alive() bool {
	if p.done == nil {
		return processAlive(p.pid)
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// signal sends sig; a process that has already ended is no error.
func (p *process) signal(sig syscall.Signal) error {
	if !p.alive() {
		return nil // the number may belong to another process by now
	}
	if err := syscall.Kill(p.pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.pid, err)
	}
	return nil
}

// wait returns when the process has ended, or with the cause of the end of ctx.
func (p *process) wait(ctx context.Context) error {
	for delay := time.Millisecond; p.alive(); delay = min(2*delay, 50*time.Millisecond) {
		if p.done != nil {
			select {
			case <-p.done:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := lifecycle.Pause(ctx, delay); err != nil {
			return err
		}
	}
	return nil
}

// end makes the process end now: with sig, and with SIGKILL if it has not ended within
// endTimeout.
func (p *process) end(sig syscall.Signal) {
	for _, s := range []syscall.Signal{sig, syscall.SIGKILL} {
		if p.signal(s) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		err := p.wait(ctx)
		cancel()
		if err == nil {
			return
		}
	}
}

// sysProcAttr describes how a program is started; apart puts it into a process
// group of its own.
func sysProcAttr(runAs *account, apart bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: runAs.credential(), Setpgid: apart}
}

// processAlive reports whether a process with this number exists and is no zombie.
func processAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := syscall.Kill(pid, 0)
	if err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	return !isZombie(pid)
}

// cleanEnv is the environment of the server programs: without settings of libpq or
// PostgreSQL, and with messages in English, because some of them are recognised.
func cleanEnv() []string {
	env := []string{"LC_ALL=C"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE" || name == "HOME" {
			continue
		}
		env = append(env, kv)
	}
	return env
}

// credential converts the account for the kernel; nil for our own.
func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid, Groups: []uint32{a.gid}}
}
