package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/sourcegraph/conc"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// Operations are those of a daemon's REST API; *rest.Server has them.
type Operations interface {
	// Handler serves them.
	Handler() http.Handler
	// Permissions are what each needs, by "METHOD /path".
	Permissions() map[string]auth.Permission
	// Admits returns who makes requests with such headers, or an error if an operation is refused to
	// them because their credentials are missing or wrong.
	Admits(ctx context.Context, operation string, h http.Header) (*auth.Principal, error)
	// Refuse answers a request that is not admitted. One that is gets 204, and nothing is done.
	Refuse(w http.ResponseWriter, r *http.Request)
}

// Config is common to both daemons' servers, see Configure. Zero fields have the defaults
// named at them.
type Config struct {
	// Address to listen on, host:port; port 0 picks a free one. Required for Start.
	Address string
	// TLS encrypts, for the protocol h2; nil: plain text.
	TLS *tls.Config
	// KeyHeader is the header of REST that carries API keys; in metadata it is lower case.
	KeyHeader string
	// RequestTimeout bounds each rpc but streams. Required.
	RequestTimeout time.Duration
	// MaxMessageBytes bounds a request. Required.
	MaxMessageBytes int
	// KeepaliveInterval is how often an idle connection is pinged, KeepaliveTimeout how long
	// the answer may take. Required.
	KeepaliveInterval, KeepaliveTimeout time.Duration
	// MaxConcurrentStreams bounds the rpcs under way on one connection. Required.
	MaxConcurrentStreams int
	// MaxTaskStreams bounds the streams of task statuses of all connections. Required.
	MaxTaskStreams int
	// Share is the percentage of them that one principal may have; 0: all.
	Share int
	// StreamInterval is how often the task of a stream is looked at; default 1 s.
	StreamInterval time.Duration
	// StreamLife ends a stream of task statuses; default 1 h.
	StreamLife time.Duration
	// Reflection and Health serve grpc.reflection.v1 and grpc.health.v1.
	Reflection, Health bool
	// Sessions serves the sessions of an orchestrator; a worker always does.
	Sessions bool
	// OnFatal is called when serving has ended unexpectedly; default: it is only logged.
	OnFatal func(error)
	// Telemetry counts rpcs; default none.
	Telemetry *telemetry.Metrics
	Logger    *zap.Logger // default: no logging
}

func (c Config) withDefaults() Config {
	c.Telemetry = c.Telemetry.OrDiscard()
	if c.StreamInterval <= 0 {
		c.StreamInterval = time.Second
	}
	if c.StreamLife <= 0 {
		c.StreamLife = time.Hour
	}
	if c.OnFatal == nil {
		c.OnFatal = func(error) {}
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// Server serves one daemon's gRPC interface. It implements lifecycle.Service and is safe for
// concurrent use.
type Server struct {
	name       string
	cfg        Config
	log        *zap.Logger
	operations Operations
	handler    http.Handler      // of the operations
	serves     map[string]bool   // the operations that exist
	carried    map[string]string // see there
	grpc       *entrance
	health     *health.Server     // nil: not served
	calls      lifecycle.Underway // rpcs
	places     *places.Places     // one per stream of a task

	draining, stopping context.Context
	drain, stop        context.CancelFunc
	leaving            sync.Once
	left               chan struct{} // closed once the connections from before the drain have ended

	mu       sync.Mutex
	listener net.Listener // nil before Listen
	address  net.Addr
	started  bool
	stopped  bool
	group    conc.WaitGroup
}

func newServer(name string, cfg Config, operations Operations) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if operations == nil {
		return nil, errors.New("want the operations of REST for gRPC")
	}
	cfg = cfg.withDefaults()
	s := &Server{name: name, cfg: cfg, log: cfg.Logger, operations: operations, handler: operations.Handler(), serves: map[string]bool{}, carried: carried(cfg.KeyHeader),
		places: places.New("task streams", int64(cfg.MaxTaskStreams), cfg.Share), left: make(chan struct{})}
	for operation := range operations.Permissions() {
		s.serves[operation] = true
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.grpc = &entrance{before: grpc.NewServer(s.options(0)...), draining: grpc.NewServer(s.options(drainAge)...), turned: s.draining}
	return s, nil
}

// connectTimeout bounds the beginning of a connection, maxHeaderBytes the metadata of an rpc.
// Clients may ping as often as leastPing.
const (
	connectTimeout = 10 * time.Second
	maxHeaderBytes = 64 << 10
	leastPing      = 5 * time.Second
)

// options are those of a server whose connections get an age; 0: any.
func (s *Server) options(age time.Duration) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.streaming), grpc.InTapHandle(s.tap),
		grpc.MaxRecvMsgSize(s.cfg.MaxMessageBytes), grpc.MaxConcurrentStreams(uint32(s.cfg.MaxConcurrentStreams)),
		grpc.MaxHeaderListSize(maxHeaderBytes), grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.cfg.KeepaliveInterval, Timeout: s.cfg.KeepaliveTimeout, MaxConnectionAge: age}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: leastPing, PermitWithoutStream: true}),
	}
	if s.cfg.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(s.cfg.TLS)))
	}
	return options
}

// finish adds the services that are not Tasker's own.
func (s *Server) finish() {
	if s.cfg.Health {
		s.health = health.NewServer()
		for name := range s.grpc.GetServiceInfo() {
			s.health.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
		}
		grpc_health_v1.RegisterHealthServer(s.grpc, &readiness{s.health, s})
	}
	if s.cfg.Reflection {
		reflection.RegisterV1(s.grpc)
	}
}

// Name implements lifecycle.Service.
func (s *Server) Name() string { return s.name }

// Addr is the address listened on, nil before Listen and Start.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// Listen takes the address, so that it is known to be free before anything else starts;
// connections wait until Start. Stop gives it back.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listen(ctx)
}

func (s *Server) listen(ctx context.Context) (err error) {
	switch {
	case s.stopped:
		return lifecycle.ErrStopped
	case s.listener != nil:
		return nil
	}
	if s.listener, err = lifecycle.Listen(ctx, s.cfg.Address); err == nil {
		s.address = s.listener.Addr()
	}
	return err
}

// Start implements lifecycle.Service: it listens, and returns when connections are
// accepted.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return lifecycle.ErrStopped
	case s.started:
		return nil
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	s.started = true
	listener := s.listener
	s.group.Go(func() { s.serve(listener) })
	s.log.Info("serving gRPC", zap.String("server", s.name), zap.Stringer("address", s.address))
	return nil
}

func (s *Server) serve(listener net.Listener) {
	err := lifecycle.Guard(func() error { return s.grpc.serve(listener) })
	if err == nil || errors.Is(err, grpc.ErrServerStopped) {
		return
	}
	s.log.Error("serving gRPC has ended unexpectedly", zap.String("server", s.name), zap.Error(err), lifecycle.StackField(err))
	s.cfg.OnFatal(fmt.Errorf("serve gRPC: %w", err))
}

// Drain ends the streams of task statuses, whose clients find another daemon, tells all
// connections to go, and makes grpc.health.v1 answer NOT_SERVING; rpcs are answered as before,
// on new connections too. Stop does the same first.
func (s *Server) Drain() {
	s.leaving.Do(func() {
		if s.health != nil {
			s.health.Shutdown()
		}
		s.drain()
		s.group.Go(func() {
			defer close(s.left)
			s.grpc.drain(s.stopping)
		})
	})
}

// closeMoment is how long connections without an rpc of ours may stay when stopping.
const closeMoment = time.Second

// Stop implements lifecycle.Service: rpcs under way finish, and if ctx ends first their
// connections are closed.
func (s *Server) Stop(ctx context.Context) error {
	s.Drain()
	s.stop()
	s.mu.Lock()
	s.stopped = true
	if s.listener != nil && !s.started {
		_ = s.listener.Close() // it was never served
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	s.group.Go(func() {
		defer close(ended)
		s.grpc.draining.GracefulStop()
		<-s.left
	})
	err := s.await(ctx, ended)
	s.grpc.stop()
	s.group.Wait()
	return err
}

// await returns when all connections are closed, or may be: without rpcs under way a client
// of reflection is given a moment only.
func (s *Server) await(ctx context.Context, ended <-chan struct{}) error {
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d rpcs were still under way and have been aborted: %w", s.calls.Count(), ctx.Err())
	case <-s.calls.Close():
	}
	moment := time.NewTimer(closeMoment)
	defer moment.Stop()
	select {
	case <-ended:
	case <-moment.C:
	case <-ctx.Done():
	}
	return nil
}
