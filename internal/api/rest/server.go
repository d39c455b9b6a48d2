package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sourcegraph/conc"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/telemetry"
	"github.com/tasker-go/tasker/internal/tracing"
)

// Config is common to both daemons' servers, see Configure. Zero fields have the defaults
// named at them.
type Config struct {
	// Address to listen on, host:port; port 0 picks a free one. Required for
	// Start.
	Address     string
	Version     string
	Environment string
	// RequestTimeout bounds each request, without waiting for a task. Required. Beyond it
	// the answer is 504, or 408 if the body has not arrived.
	RequestTimeout time.Duration
	// MaxBodyBytes bounds a request's body, then 413. Required.
	MaxBodyBytes int64
	// MaxWait caps ?wait=. Zero or less forbids waiting: such requests are answered at
	// once.
	MaxWait time.Duration
	// MaxWaiting bounds the requests that wait at once; default 10,000. Those beyond are
	// answered at once.
	MaxWaiting int
	// HeaderTimeout bounds the reading of a request's header; default 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout closes connections without requests; default 2 min.
	IdleTimeout time.Duration
	// MaxHeaderBytes bounds the header; default 64 KiB.
	MaxHeaderBytes int
	// BodyBudget bounds the bytes of all bodies of concurrent requests, except those of
	// up to 16 KiB; AnswerBudget bounds the data read for answers. Both are required. A
	// request that has waited 5 s for its share gets 503 with Retry-After, or 429 where its
	// principal uses what Access.Share leaves it.
	BodyBudget, AnswerBudget int64
	// BrowserSessions bound the sessions that an orchestrator opens. Required.
	BrowserSessions BrowserSessions
	// Telemetry counts requests; default none.
	Telemetry *telemetry.Metrics
	// Metrics are served at /metrics; without them the route does not exist.
	Metrics prometheus.Gatherer
	// Access says who may use the server.
	Access Access
	// TLS encrypts; nil: plain text.
	TLS *tls.Config
	// Warnings are what the configuration leaves open, for the detailed health.
	Warnings []string
	// MetricAliases shows metrics at /metrics under their names in other products as well.
	MetricAliases bool
	// Tracer makes the spans of requests that may create tasks; nil: there are none.
	Tracer *tracing.Tracer
	Logger *zap.Logger // default: no logging
	// LogLevels are those of the daemon; nil: they cannot be changed, and the routes do not exist.
	LogLevels *telemetry.Levels
}

func (c Config) withDefaults() Config {
	c.Telemetry = c.Telemetry.OrDiscard()
	c.MaxWait = max(c.MaxWait, 0)
	if c.MaxWaiting <= 0 {
		c.MaxWaiting = 10_000
	}
	if c.HeaderTimeout <= 0 {
		c.HeaderTimeout = 10 * time.Second
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 2 * time.Minute
	}
	if c.MaxHeaderBytes <= 0 {
		c.MaxHeaderBytes = 64 << 10
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// Server serves one daemon's API. It implements lifecycle.Service and is safe for
// concurrent use.
type Server struct {
	name    string
	cfg     Config
	log     *zap.Logger
	audit   *zap.Logger
	handler http.Handler
	openAPI []byte
	// keyHeader carries API keys. It is canonical, or each request would make it so.
	keyHeader string
	// permissions are what the routes need.
	permissions map[string]auth.Permission

	draining atomic.Bool
	failed   atomic.Bool // serving has ended unexpectedly
	stopping context.Context
	stop     context.CancelFunc
	waiting  *places.Places     // of the requests that wait for a task
	intake   lifecycle.Underway // of requests; probes and metrics bypass it
	bodies   *budget
	answers  *budget
	buffers  sync.Pool // of *bytes.Buffer, for answers
	lines    sync.Pool // of *[]zap.Field, for the audit log
	noted    noted     // the ignored keys that were logged
	refused  refusals  // the refused requests that were logged
	browsers browsers

	mu       sync.Mutex
	http     *http.Server
	listener net.Listener // nil before Listen
	address  net.Addr
	stopped  bool
	group    conc.WaitGroup
}

func newServer(name string, cfg Config) (*Server, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Server{name: name, cfg: cfg, log: cfg.Logger, audit: cfg.Logger.Named(telemetry.AuditLogger),
		keyHeader: http.CanonicalHeaderKey(cfg.Access.KeyHeader), permissions: map[string]auth.Permission{},
		bodies: newBudget("bodies", cfg.BodyBudget, cfg), answers: newBudget("answers", cfg.AnswerBudget, cfg),
		waiting: places.New("waiting requests", int64(cfg.MaxWaiting), cfg.Access.Share)}
	var err error
	if s.browsers, err = newBrowsers(cfg); err != nil {
		return nil, err
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	return s, nil
}

// Name implements lifecycle.Service.
func (s *Server) Name() string { return s.name }

// Handler returns the whole API, for tests and for callers with their own listener.
func (s *Server) Handler() http.Handler { return s.handler }

// OpenAPI returns the OpenAPI 3.1 document as JSON. The caller must not change it.
func (s *Server) OpenAPI() []byte { return s.openAPI }

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
	case s.http != nil:
		return nil
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	listener := s.listener
	if s.cfg.TLS != nil {
		listener = tls.NewListener(listener, s.cfg.TLS)
	}
	errorLog, err := zap.NewStdLogAt(s.log, zap.DebugLevel)
	if err != nil {
		return errors.Join(fmt.Errorf("create the server's log: %w", err), listener.Close())
	}
	s.http = &http.Server{
		Handler:           s.handler,
		BaseContext:       connected,
		ReadHeaderTimeout: s.cfg.HeaderTimeout,
		// There is no ReadTimeout: it would end waiting requests. Bodies are read under
		// the request's deadline.
		WriteTimeout:   s.cfg.RequestTimeout + s.cfg.MaxWait + 10*time.Second,
		IdleTimeout:    s.cfg.IdleTimeout,
		MaxHeaderBytes: s.cfg.MaxHeaderBytes,
		ErrorLog:       errorLog,
	}
	s.group.Go(func() { s.serve(s.http, listener) })
	s.log.Info("serving HTTP", zap.String("server", s.name), zap.Stringer("address", s.address))
	return nil
}

func (s *Server) serve(server *http.Server, listener net.Listener) {
	err := lifecycle.Guard(func() error { return server.Serve(listener) })
	if !errors.Is(err, http.ErrServerClosed) {
		s.failed.Store(true)
		s.log.Error("serving HTTP has ended unexpectedly", zap.String("server", s.name), zap.Error(err), lifecycle.StackField(err))
	}
}

// Drain makes /health/ready answer 503 while everything else continues, so that no new
// requests are sent here; connections end with their next answer. Finish and Stop do the
// same first.
func (s *Server) Drain() { s.draining.Store(true) }

// Stop implements lifecycle.Service: requests that wait for a task are answered with its
// present state, those under way finish, and if ctx ends first their connections are
// closed.
func (s *Server) Stop(ctx context.Context) error {
	s.Drain()
	s.stop()
	s.mu.Lock()
	s.stopped = true
	server, listener := s.http, s.listener
	s.mu.Unlock()
	switch {
	case server == nil && listener != nil:
		return listener.Close() // it was never served
	case server == nil:
		return nil
	}
	err := server.Shutdown(ctx)
	if err != nil {
		err = fmt.Errorf("requests were still under way and have been aborted: %w", errors.Join(err, server.Close()))
	}
	s.group.Wait()
	return err
}
