package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
	"github.com/tasker-go/tasker/test/chaos/internal/workload"
	"github.com/tasker-go/tasker/test/fleet"
)

// Daemon is one place in the fleet: a daemon or an executor that is ended and started again
// in it, and its links to the database or to the workers. Faults on it are serialized.
type Daemon struct {
	Name string
	Kind fleet.Kind
	// Pool is the link of its ordinary connections, Ears that of its listeners, or of all that
	// it has to do with the broker. Those of an executor are Doors, one to each worker; Ears is
	// the first of them.
	Pool, Ears *Link
	Doors      []*Link

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
	d.starts++
	name := fmt.Sprintf("%s.%d", d.Name, d.starts)
	options := fleet.Options{Kind: d.Kind, BinDir: d.rig.o.BinDir, WorkDir: filepath.Join(d.rig.o.Dir, "daemons"), Name: name,
		Env: []string{workload.EnvLedger + "=" + d.rig.Ledger(), workload.EnvInstance + "=" + name}}
	configure := d.asDaemon
	if d.Kind == Executor {
		configure = d.asExecutor
	}
	if err := configure(&options); err != nil {
		return err
	}
	p, err := fleet.Start(options)
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	if d.proc != nil {
		d.past = append(d.past, d.proc)
	}
	d.proc, d.wanted = p, true
	if d.Kind == fleet.Worker {
		return d.rig.lead(d, d.addressLocked())
	}
	return nil
}

func (d *Daemon) asDaemon(o *fleet.Options) (err error) {
	if o.DatabaseURL, err = d.Pool.DSN(d.rig.DSN()); err != nil {
		return err
	}
	if o.Config, err = d.rig.config(d); err != nil {
		return err
	}
	o.Mode, o.EventSource = d.mode, d.rig.o.Source
	o.Env = append(o.Env, "TASKER_ENV=development", workload.EnvGates+"="+d.rig.Gates(), workload.EnvServes+"="+d.rig.o.Serves[d.Name])
	if d.rig.o.Executors > 0 {
		o.Env = append(o.Env, workload.EnvElsewhere+"=yes")
	}
	return nil
}

// asExecutor spreads the executors: each begins with another worker.
func (d *Daemon) asExecutor(o *fleet.Options) error {
	var urls []string
	for i := range d.Doors {
		urls = append(urls, "http://"+d.Doors[(i+int(d.Name[len(d.Name)-1]))%len(d.Doors)].address)
	}
	o.Env = append(o.Env, "PYTHONDONTWRITEBYTECODE=1", "CHAOS_DAEMONS="+strings.Join(urls, ","))
	return nil
}

// LinksBut are all links of a daemon, and all but one of an executor, which the seed chooses:
// it goes on with its steps at that worker.
func (d *Daemon) LinksBut(seed uint64) []*Link {
	if d.Kind != Executor {
		return d.Links()
	}
	spared := int(seed % uint64(len(d.Doors))) // #nosec G115 -- a few
	return slices.Delete(slices.Clone(d.Doors), spared, spared+1)
}

// Links are all that the daemon has.
func (d *Daemon) Links() []*Link {
	if d.Kind == Executor {
		return d.Doors
	}
	return slices.DeleteFunc([]*Link{d.Pool, d.Ears}, func(l *Link) bool { return l == nil })
}

// address is that of its HTTP server.
func (d *Daemon) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.addressLocked()
}

func (d *Daemon) addressLocked() string { return strings.TrimPrefix(d.proc.URL, "http://") }

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

// settle waits for a daemon that was started a moment ago: a signal that comes before it
// listens to signals is a kill.
func (d *Daemon) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	d.mu.Lock()
	running := d.running()
	d.mu.Unlock()
	if running {
		_ = d.WaitReady(ctx) // if it is not ready by then, it listens
	}
}

// startTime is more than a daemon needs to begin.
const startTime = 10 * time.Second

// stopTime bounds an orderly end: the daemons' own bound is 15 to 30 s.
const stopTime = 40 * time.Second

// SetMode is the mode of the next start.
func (d *Daemon) SetMode(mode string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mode = mode
}

// WaitReady waits until the daemon is ready, and until an executor has begun its ledger.
func (d *Daemon) WaitReady(ctx context.Context) error {
	d.mu.Lock()
	p := d.proc
	d.mu.Unlock()
	if d.Kind != Executor {
		return p.WaitReady(ctx)
	}
	for {
		if _, err := os.Stat(ledger.File(d.rig.Ledger(), p.Name)); err == nil {
			return nil
		}
		if err := lifecycle.Pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for %s: %w\n%s", p.Name, err, tail(p.Log(), 2000))
		}
	}
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
