package pgcluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// maxPorts bounds how often a start is retried because another program has taken the free
// port between looking and binding.
const maxPorts = 50

// errPortTaken and errStillAttached are the two retryable failures: after a crash the old
// server's children may hold its shared memory for a while, on a busy machine for many
// seconds. The context bounds that.
var (
	errPortTaken     = errors.New("the port is in use")
	errStillAttached = errors.New("processes of the previous server have not ended yet")
)

// launch starts the server and waits until it answers. It requires the lock, or that no
// other goroutine knows c.
func (c *Cluster) launch(ctx context.Context) error {
	if c.socketDir == "" && sockets {
		if err := c.useSocketDir(); err != nil {
			return err
		}
	}
	if c.bin.Dir == "" { // attached
		var err error
		if c.bin, err = c.chooseBinaries(ctx); err != nil {
			return err
		}
	}
	kept := false
	switch {
	case c.opts.Port != 0:
		c.port = c.opts.Port
	case c.port == 0 && !c.opts.Ephemeral:
		c.port = c.keptPort()
		kept = c.port != 0
	}
	pick := c.port == 0
	wait := 5 * time.Millisecond
	for try := 1; ; try++ {
		if pick {
			port, err := FreePort(ctx)
			if err != nil {
				return err
			}
			c.port = port
		}
		if err := c.keepPort(); err != nil {
			return err
		}
		err := c.launchOnce(ctx)
		if err == nil {
			return nil
		}
		again := errors.Is(err, errStillAttached)
		if errors.Is(err, errPortTaken) {
			again = pick && try < maxPorts || kept
			if kept {
				kept = false
				c.yieldPort()
				pick = !c.noTCP
			}
		}
		if !again {
			return err
		}
		if sleepErr := lifecycle.Pause(ctx, wait); sleepErr != nil {
			return err
		}
		wait = min(2*wait, 200*time.Millisecond)
	}
}

// yieldPort leaves the kept port to the program that has taken it. The address that clients have is that of the socket,
// whose name has the port and stays; where there is none, another port is picked.
func (c *Cluster) yieldPort() {
	c.noTCP = sockets
	if sockets {
		c.tell(fmt.Sprintf("Another program has port %d; PostgreSQL listens on its socket alone.", c.port))
		return
	}
	c.tell(fmt.Sprintf("Another program has port %d; PostgreSQL gets another one, and DATABASE_URL changes.", c.port))
}

func (c *Cluster) launchOnce(ctx context.Context) error {
	log, err := c.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own copy
	c.removeSockets()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("find the end of the log: %w", err)
	}
	cmd := command{bin: c.bin, args: c.serverArgs(), dir: c.pgdata(), runAs: c.runAs, output: log, orphaned: c.orphaned()}
	if c.opts.Detached {
		c.proc, err = startDetached(ctx, cmd)
	} else {
		c.proc, err = startChild(cmd)
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", c.bin.Postgres(), err)
	}
	if err := c.awaitReady(ctx, from); err != nil {
		c.proc.end(syscall.SIGKILL)
		c.proc = nil
		return err
	}
	return nil
}

// orphaned is the signal for the server if this process is killed: a fast, orderly shutdown,
// or an immediate one if its data is not needed. A fast shutdown during recovery may never
// end, an immediate one always does.
func (c *Cluster) orphaned() syscall.Signal {
	if c.opts.Ephemeral {
		return syscall.SIGQUIT
	}
	return syscall.SIGINT
}

// awaitReady polls until the server answers, has ended, or ctx does.
func (c *Cluster) awaitReady(ctx context.Context, from int64) error {
	wait := 2 * time.Millisecond
	for {
		err := c.ping(ctx)
		if err == nil {
			return nil
		}
		if !c.proc.alive() {
			return c.startFailure(from)
		}
		if sleepErr := lifecycle.Pause(ctx, wait); sleepErr != nil {
			return fmt.Errorf("PostgreSQL in %s was not ready in time: %w (last answer: %w)\n%s", c.dataDir, sleepErr, err, c.logTail(from))
		}
		wait = min(2*wait, 50*time.Millisecond)
	}
}

// startFailure explains why the server ended instead of becoming ready.
func (c *Cluster) startFailure(from int64) error {
	tail := c.logTail(from)
	switch {
	case bytes.Contains(tail, []byte("Address already in use")):
		return fmt.Errorf("PostgreSQL on 127.0.0.1:%d: %w\n%s", c.port, errPortTaken, tail)
	case bytes.Contains(tail, []byte("pre-existing shared memory block")):
		return fmt.Errorf("PostgreSQL in %s: %w\n%s", c.dataDir, errStillAttached, tail)
	default:
		return fmt.Errorf("PostgreSQL in %s ended while starting; its log %s says:\n%s", c.dataDir, c.LogFile(), tail)
	}
}

// ping connects over the socket once, or where there is none with the password. The server that
// answers is certainly ours: no other user can put a socket into the directory.
func (c *Cluster) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, c.socketDSN(Superuser))
	if err != nil {
		return err // names the address
	}
	return conn.Close(ctx)
}

// Stop shuts the server down: connections are ended, everything is written. At the end of
// ctx (DefaultStopTimeout when it has no deadline) the server is stopped immediately, and
// recovers at its next start. An ephemeral cluster's directory is removed. Stopping twice is
// harmless.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.shutDownLocked(ctx)
	c.dropSocketDir()
	if c.opts.Ephemeral && !c.gone {
		if rmErr := os.RemoveAll(c.dataDir); rmErr != nil {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", c.dataDir, rmErr))
		}
	}
	c.gone = true
	c.unlock()
	return err
}

func (c *Cluster) shutDownLocked(ctx context.Context) error {
	if c.proc == nil {
		return nil
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultStopTimeout)
		defer cancel()
	}
	proc := c.proc
	c.proc = nil
	if err := proc.signal(syscall.SIGINT); err != nil { // "fast": rolls back and ends sessions
		return fmt.Errorf("ask PostgreSQL to stop: %w", err)
	}
	if proc.wait(ctx) == nil {
		return nil
	}
	proc.end(syscall.SIGQUIT)
	return fmt.Errorf("PostgreSQL (pid %d) did not shut down in time and was stopped at once: %w", proc.pid, context.Cause(ctx))
}

// Kill ends the server as a power failure would, with SIGKILL, and waits for its end.
// Sessions see their connections break. For tests.
func (c *Cluster) Kill(ctx context.Context) error {
	return c.halt(ctx, syscall.SIGKILL)
}

// StopImmediate ends the server without writing anything back (`pg_ctl stop -m
// immediate`); it recovers at its next start. For tests.
func (c *Cluster) StopImmediate(ctx context.Context) error {
	return c.halt(ctx, syscall.SIGQUIT)
}

func (c *Cluster) halt(ctx context.Context, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proc == nil {
		return nil
	}
	if err := c.proc.signal(sig); err != nil {
		return fmt.Errorf("send %v to PostgreSQL: %w", sig, err)
	}
	if err := c.proc.wait(ctx); err != nil {
		return fmt.Errorf("wait for PostgreSQL to end after %v: %w", sig, err)
	}
	c.proc = nil
	return nil
}

// Restart starts the server again after Kill, StopImmediate or its own end, on the same port
// and socket. A running server is shut down first.
func (c *Cluster) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.opts.StartTimeout, DefaultStartTimeout))
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return errors.New("restart PostgreSQL: the cluster has been stopped for good")
	}
	if c.proc != nil && c.proc.alive() {
		if err := c.shutDownLocked(ctx); err != nil {
			return err
		}
	}
	return c.launch(ctx)
}

// Revive returns when the server answers, and starts it if it has ended by itself, on the
// same port and socket, like the supervisor of a service. It waits for a server that is
// recovering. For tests.
func (c *Cluster) Revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.opts.StartTimeout, DefaultStartTimeout))
	defer cancel()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		answered, err := c.reviveOnce(ctx)
		if answered || err != nil {
			return err
		}
		if err := lifecycle.Pause(ctx, wait); err != nil {
			return fmt.Errorf("wait for PostgreSQL in %s to recover: %w", c.dataDir, err)
		}
	}
}

// reviveOnce starts a server that has ended, or checks whether a running one answers.
func (c *Cluster) reviveOnce(ctx context.Context) (answered bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.gone:
		return false, errors.New("revive PostgreSQL: the cluster has been stopped for good")
	case c.proc == nil || !c.proc.alive():
		err := c.launch(ctx)
		return err == nil, err
	}
	return c.ping(ctx) == nil, nil
}

// RestartImmediate stops the server without warning and starts it again on the
// same port and socket, which makes it recover from its log. For tests.
func (c *Cluster) RestartImmediate(ctx context.Context) error {
	if err := c.StopImmediate(ctx); err != nil {
		return err
	}
	return c.Restart(ctx)
}

// FreePort asks the kernel for a loopback port that is free at this moment.
func FreePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("give the free port back: %w", err)
	}
	if !ok {
		return 0, fmt.Errorf("find a free port: unexpected address %v", l.Addr())
	}
	return addr.Port, nil
}
