package rig

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/test/chaos/internal/workload"
	"github.com/tasker-go/tasker/test/fleet"
)

// Daemon is one place in the fleet: a daemon that is ended and started again in it, and
// its links to the database. Faults on it are serialized.
type Daemon struct {
	Name string
	Kind fleet.Kind
	// Pool is the link of its ordinary connections, Ears that of its listeners.
	Pool, Ears *Link

	rig    *Rig
	busy   chan struct{} // holds one token while a fault has the daemon
	mu     sync.Mutex
	mode   string
	proc   *fleet.Process
	starts int
	wanted bool // it should run: its end is a surprise
	past   []*fleet.Process
}

// Take reserves the daemon for one fault; the returned function releases it.
func (d *Daemon) Take(ctx context.Context) (release func(), err error) {
	return take(ctx, d.busy, d.Name)
}

// Start runs the daemon, if it does not run, and does not wait for it to be ready.
func (d *Daemon) Start() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.startLocked()
}

func (d *Daemon) startLocked() error {
	if d.running() {
		return nil
	}
	pool, err := d.Pool.DSN(d.rig.DSN())
	if err != nil {
		return err
	}
	ears, err := d.Ears.DSN(d.rig.DSN())
	if err != nil {
		return err
	}
	d.starts++
	name := fmt.Sprintf("%s.%d", d.Name, d.starts)
	options := fleet.Options{
		Kind: d.Kind, BinDir: d.rig.o.BinDir, WorkDir: filepath.Join(d.rig.o.Dir, "daemons"), Name: name,
		DatabaseURL: pool, Mode: d.mode, EventSource: d.rig.o.Source, Config: d.rig.config(d.Kind, ears),
		Env: []string{"TASKER_ENV=development", workload.EnvLedger + "=" + d.rig.Ledger(), workload.EnvInstance + "=" + name,
			workload.EnvGates + "=" + d.rig.Gates(), workload.EnvServes + "=" + d.rig.o.Serves[d.Name]},
	}
	p, err := fleet.Start(options)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if d.proc != nil {
		d.past = append(d.past, d.proc)
	}
	d.proc, d.wanted = p, true
	return nil
}

// running reports whether a process exists; a frozen one does.
func (d *Daemon) running() bool {
	if d.proc == nil {
		return false
	}
	select {
	case <-d.proc.Done():
		return false
	default:
		return true
	}
}

// Kill ends the daemon with SIGKILL.
func (d *Daemon) Kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = false
	if d.proc != nil {
		d.proc.Kill()
	}
}

// Freeze stops the daemon where it is; Thaw continues it.
func (d *Daemon) Freeze() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.signal(syscall.SIGSTOP)
}

// Thaw is the end of Freeze.
func (d *Daemon) Thaw() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.signal(syscall.SIGCONT)
}

func (d *Daemon) signal(s syscall.Signal) error {
	if !d.running() {
		return nil
	}
	if err := d.proc.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, d.Name, err)
	}
	return nil
}

// Stop stops the daemon and waits; it hands back its claims. The bound is the daemon's
// own, and some more.
func (d *Daemon) Stop(ctx context.Context) error {
	d.mu.Lock()
	d.wanted = false
	p, running := d.proc, d.running()
	d.mu.Unlock()
	if !running {
		return nil
	}
	d.rig.willStop(p.Name)
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		if ctx.Err() != nil {
			d.rig.surprise(fmt.Sprintf("%s did not stop within %v; its last words:\n%s", p.Name, stopTime, tail(p.Log(), 2000)))
		}
		return fmt.Errorf("stop %s: %w", p.Name, err)
	}
	return nil
}

// stopTime bounds an orderly end: the daemons' own bound is 15 to 30 s.
const stopTime = 40 * time.Second

// SetMode is the mode of the next start.
func (d *Daemon) SetMode(mode string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mode = mode
}

// WaitReady waits until the daemon is ready.
func (d *Daemon) WaitReady(ctx context.Context) error {
	d.mu.Lock()
	p := d.proc
	d.mu.Unlock()
	return p.WaitReady(ctx)
}

// URL is that of its HTTP server now; "" if it does not run.
func (d *Daemon) URL() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running() {
		return ""
	}
	return d.proc.URL
}

// Starts is how often it was started.
func (d *Daemon) Starts() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.starts
}

// guard restarts a daemon that has ended by itself, as any supervisor would, and returns
// its last words.
func (d *Daemon) guard() (surprise string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.wanted || d.running() {
		return "", nil
	}
	surprise = fmt.Sprintf("%s ended by itself with code %d; its last words:\n%s", d.proc.Name, d.proc.ExitCode(), tail(d.proc.Log(), 2000))
	return surprise, d.startLocked()
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// logs are the logs of all its processes, by name.
func (d *Daemon) logs() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	logs := map[string]string{}
	for _, p := range append(d.past, d.proc) {
		if p != nil {
			logs[p.Name] = p.Log()
		}
	}
	return logs
}
