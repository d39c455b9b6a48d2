// Package fleet runs the real daemons as processes, for end-to-end tests and
// benchmarks: it builds the binaries, writes a configuration for each process,
// starts, kills and stops them, and keeps what they log.
//
// What may not enter: shortcuts into the daemons. Tests use HTTP or the database, like any
// client.
package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/internal/child"
)

// Kind names the daemon of a process.
type Kind string

// The daemons, by the names of their programs.
const (
	Orchestrator Kind = "orchestrator"
	Worker       Kind = "worker"
)

// Options describe one process.
type Options struct {
	Kind        Kind
	BinDir      string // where Build put the binaries
	WorkDir     string // of one fleet, for configuration and logs; made when missing
	Name        string // unique in WorkDir
	DatabaseURL string
	Mode        string // deployment mode; "" leaves the default
	EventSource string // "" is that of EnvSource, or the default
	Config      string // further TOML, whole tables with dotted names
	Raw         string // the whole TOML, instead of all of the above
	Env         []string
	Address     string // host:port of the HTTP server; "" takes a free port
	// Web are further lines of the table of the HTTP server. TLS says that they have it
	// serve TLS, with a certificate that this program trusts.
	Web string
	TLS bool
}

// Process is a running daemon.
type Process struct {
	Kind Kind
	Name string
	URL  string // of its HTTP server

	child *child.Process
	log   *logBuffer
}

// Start runs a daemon and returns at once; see WaitReady.
func Start(o Options) (*Process, error) {
	if err := os.MkdirAll(o.WorkDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the work directory: %w", err)
	}
	address := o.Address
	if address == "" {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		address = fmt.Sprintf("127.0.0.1:%d", port)
	}
	file := filepath.Join(o.WorkDir, o.Name+".toml")
	if err := os.WriteFile(file, []byte(o.toml(address)), 0o600); err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	p := &Process{Kind: o.Kind, Name: o.Name, URL: "http://" + address, log: &logBuffer{}}
	if o.TLS {
		p.URL = "https://" + address
	}
	// The process outlives every context of its caller; Stop and Kill end it.
	cmd := exec.CommandContext(context.Background(), filepath.Join(o.BinDir, string(o.Kind)))
	cmd.Env = append(cleanEnv(), "TASKER_CONFIG_PATH="+file, "TASKER_ENV=test", "DATABASE_URL="+o.DatabaseURL)
	cmd.Env = append(cmd.Env, o.Env...)
	cmd.Stdout, cmd.Stderr = p.log, p.log
	var err error
	if p.child, err = child.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	return p, nil
}

func (o Options) toml(address string) string {
	if o.Raw != "" {
		return o.Raw
	}
	var b strings.Builder
	if source := os.Getenv(EnvSource); (o.EventSource == "" || o.EventSource == source) && !o.ownBroker() {
		o.EventSource = source
		b.WriteString(apart(source, o.WorkDir))
	}
	section := "orchestration"
	systems := []string{"orchestration.event_systems.orchestration", "orchestration.event_systems.task_readiness"}
	if o.Kind == Worker {
		section, systems = "worker", []string{"worker.event_systems.worker"}
	}
	if o.EventSource != "" {
		fmt.Fprintf(&b, "[common.signals]\nevent_source = %q\n", o.EventSource)
	}
	fmt.Fprintf(&b, "[common.telemetry]\nlog_format = \"json\"\n")
	fmt.Fprintf(&b, "[%s.web]\nbind_address = %q\n%s[%s.grpc]\nenabled = false\n", section, address, o.Web, section)
	if o.Mode != "" {
		for _, system := range systems {
			fmt.Fprintf(&b, "[%s]\ndeployment_mode = %q\n", system, o.Mode)
		}
	}
	b.WriteString(o.Config)
	return b.String()
}

// ownBroker reports whether the environment of the daemon names a broker of its own.
func (o Options) ownBroker() bool {
	return slices.ContainsFunc(o.Env, func(e string) bool {
		return strings.HasPrefix(e, "RABBITMQ_URL=") || strings.HasPrefix(e, "REDIS_URL=")
	})
}

// cleanEnv is the environment without variables that would configure a daemon.
func cleanEnv() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "TASKER_") || strings.HasPrefix(name, "PG") ||
			name == "DATABASE_URL" || name == "DATABASE_URL_FILE" || name == "DEPLOYMENT_MODE" || name == "WORKER_NAMESPACES" {
			continue
		}
		env = append(env, e)
	}
	return env
}

// Ports below those of outgoing connections, which could otherwise take a port between the
// check whether it is free and the daemon's bind.
const firstPort, ports = 20_000, 12_000

// nextPort counts from a random number, which differs between processes: one that drew each
// port would draw one twice for daemons that start at the same time.
var nextPort = func() *atomic.Uint32 {
	var n atomic.Uint32
	n.Store(rand.Uint32N(ports))
	return &n
}()

func freePort() (int, error) {
	var err error
	for range 100 {
		port := firstPort + int(nextPort.Add(1)%ports)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil { //nolint:noctx // a local bind returns at once
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// WaitReady waits until the daemon reports that it is ready.
func (p *Process) WaitReady(ctx context.Context) error {
	for {
		status, err := p.get(ctx, "/health/ready")
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("%s ended (%w):\n%s", p.Name, errors.Join(p.child.Err(), errors.New("before it was ready")), p.Log())
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready (last answer %d, %w):\n%s", p.Name, status, errors.Join(err, ctx.Err()), p.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *Process) get(ctx context.Context, path string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.child.Signal(s) }

// PID is the id of the process.
func (p *Process) PID() int { return p.child.PID() }

// Kill ends the process without a chance to clean up.
func (p *Process) Kill() {
	_ = p.child.Signal(syscall.SIGKILL) // it may have ended
	<-p.Done()
}

// Stop terminates the process and waits; when ctx ends first, it is killed. The error says
// how it ended.
func (p *Process) Stop(ctx context.Context) error {
	_ = p.child.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.Done():
		return p.child.Err()
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("%s did not stop in time:\n%s", p.Name, p.Log())
	}
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.child.Done() }

// ExitCode is valid after Done.
func (p *Process) ExitCode() int { return p.child.ExitCode() }

// Log returns the end of the process's output, at most 256 KiB.
func (p *Process) Log() string { return p.log.String() }

// logBuffer keeps the end of an output.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const logLimit = 256 << 10

// Write implements io.Writer.
func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len()+len(b) > 2*logLimit {
		kept := bytes.Clone(l.buf.Bytes()[max(0, l.buf.Len()-logLimit):])
		l.buf.Reset()
		l.buf.Write(kept)
	}
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buf.Bytes()
	return string(b[max(0, len(b)-logLimit):])
}
