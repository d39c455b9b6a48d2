package child

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/sourcegraph/conc/panics"
)

// Process is a child. Its methods are safe for concurrent use.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // valid once done is closed
}

// Start starts cmd, which it takes over. The child gets the signal orphaned if this process
// ends first; 0 is none. A context of cmd ends the child as usual.
func Start(cmd *exec.Cmd, orphaned syscall.Signal) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	bind(cmd.SysProcAttr, orphaned)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		recovered := panics.Try(func() {
			if err := cmd.Start(); err != nil {
				started <- err
				return
			}
			started <- nil
			p.err = cmd.Wait()
		})
		if recovered != nil {
			p.err = recovered.AsError()
			select {
			case started <- p.err:
			default: // it had started
			}
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, err
	}
	return p, nil
}

// PID is the number of the process. It may belong to another process once Done is closed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended and its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended, as of [exec.Cmd.Wait]; valid after Done.
func (p *Process) Err() error { return p.err }

// ExitCode is valid after Done; negative where a signal ended the process.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal. The error wraps os.ErrProcessDone when the process has
// ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }
