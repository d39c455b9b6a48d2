package pgcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/internal/child"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// endTimeout bounds the wait for a process that was signalled to end at once.
const endTimeout = 5 * time.Second

// command is a program to be started as the server.
type command struct {
	bin    Binaries
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
	bin  Binaries        // of a child, or unknown
	done <-chan struct{} // closed when a child has ended; nil for any other process
}

// startChild starts the server as our child, in a process group of its own so
// that Ctrl-C in a terminal reaches only us and we stop the server in order.
func startChild(c command) (*process, error) {
	cmd := exec.Command(c.bin.Postgres(), c.args...) //nolint:noctx // outlives the context it is started under
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.dir, cleanEnv(), sysProcAttr(c.runAs, true)
	cmd.Stdout, cmd.Stderr = c.output, c.output
	p, err := child.Start(cmd, c.orphaned)
	if err != nil {
		return nil, err
	}
	return &process{pid: p.PID(), bin: c.bin, done: p.Done()}, nil
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
	if err := p.kill(sig); err != nil {
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
