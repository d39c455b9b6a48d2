package grpc

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"google.golang.org/grpc"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// entrance gives the connections that a listener accepts to one of two servers with the same
// services: those that are there when the daemon begins to drain are told to go, and what
// comes later, because a load balancer has not noticed, is told soon after it has come.
// A server of grpc can tell all of its connections, and admits none any more then.
type entrance struct {
	before, draining *grpc.Server
	turned           context.Context // ends when the daemon drains
}

// drainAge is how old a connection becomes that a draining daemon has admitted: of a shutdown
// delay, which is seconds, a small part. turnMoment is for connections on their way to a server.
const (
	drainAge   = 300 * time.Millisecond
	turnMoment = 50 * time.Millisecond
)

// RegisterService implements grpc.ServiceRegistrar.
func (e *entrance) RegisterService(d *grpc.ServiceDesc, service any) {
	e.before.RegisterService(d, service)
	e.draining.RegisterService(d, service)
}

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (e *entrance) GetServiceInfo() map[string]grpc.ServiceInfo { return e.before.GetServiceInfo() }

// serve returns when both servers have ended, or the listener fails; it closes the listener.
func (e *entrance) serve(listener net.Listener) error {
	first, second := newGate(listener), newGate(listener)
	var admitting, beside conc.WaitGroup
	var later error
	admitting.Go(func() { e.admit(listener, first, second) })
	beside.Go(func() { later = e.draining.Serve(second) })
	err := e.before.Serve(first)
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		e.draining.Stop()
	}
	beside.Wait()
	_ = listener.Close() // it may have failed, or be closed
	admitting.Wait()
	return cmp.Or(err, later)
}

// admit ends when no server takes what it accepts, an error neither.
func (e *entrance) admit(listener net.Listener, first, second *gate) {
	for {
		var a admission
		a.conn, a.err = listener.Accept()
		if e.turned.Err() == nil && first.pass(a) || second.pass(a) {
			continue
		}
		if a.conn != nil {
			_ = a.conn.Close() // of a client that comes too late
		}
		_ = listener.Close() // the same: there is no server for the next ones
		return
	}
}

// drain tells the connections to go, and returns when all have ended.
func (e *entrance) drain(stopping context.Context) {
	_ = lifecycle.Pause(stopping, turnMoment) // then nothing is on its way any more
	e.before.GracefulStop()
}

// stop closes all connections.
func (e *entrance) stop() {
	e.before.Stop()
	e.draining.Stop()
}

// admission is what a listener has accepted.
type admission struct {
	conn net.Conn
	err  error
}

// gate is the listener of one of the servers.
type gate struct {
	net.Listener
	admissions chan admission
	closing    sync.Once
	closed     chan struct{}
}

func newGate(l net.Listener) *gate {
	return &gate{Listener: l, admissions: make(chan admission), closed: make(chan struct{})}
}

// pass reports whether the server has taken it.
func (g *gate) pass(a admission) bool {
	select {
	case g.admissions <- a:
		return true
	case <-g.closed:
		return false
	}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case a := <-g.admissions:
		return a.conn, a.err
	case <-g.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener; the other server may go on.
func (g *gate) Close() error {
	g.closing.Do(func() { close(g.closed) })
	return nil
}
