package brokertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
)

const (
	// startTimeout bounds a start, on a machine that compiles other packages.
	startTimeout = 3 * time.Minute
	// opTimeout bounds one request to the node.
	opTimeout = time.Minute
	// startTries bounds how often a node is started because another program took a port that
	// was free a moment earlier.
	startTries = 3
)

// node is the RabbitMQ of this process.
type node struct {
	dir                        string
	sbin                       string // of its programs
	epmd, amqp, tls, web, dist int    // ports
	config                     string // a file of the configuration; empty: none
	env                        []string
	client                     *http.Client
	names, server              *child.Process // the name server and the node; nil unless running
}

var shared struct {
	mu   sync.Mutex
	node *node
}

// With returns m with the node stopped after its tests.
func With(m pgtest.TestingM) pgtest.TestingM { return withNode{m} }

type withNode struct{ pgtest.TestingM }

// Run implements pgtest.TestingM.
func (w withNode) Run() int {
	code := w.TestingM.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.node != nil {
		if err := shared.node.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return max(code, 1)
		}
		shared.node = nil
	}
	return code
}

// acquire returns the node of this process, running. Without RabbitMQ the test is left out.
func acquire(t testing.TB) *node {
	t.Helper()
	needs.Tool(t, needs.RabbitMQ)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.node != nil {
		return shared.node
	}
	n, err := open(t.Context())
	if err != nil {
		t.Fatalf("this test needs RabbitMQ: %v", err)
	}
	shared.node = n
	return n
}

// open starts a node, on other ports where another program was faster.
func open(ctx context.Context) (*node, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 1; ; try++ {
		n, err := newNode(ctx, "")
		if err == nil || ctx.Err() != nil || try == startTries {
			return n, err
		}
	}
}

func newNode(ctx context.Context, config string, env ...string) (_ *node, err error) {
	n := &node{config: config, env: env, client: &http.Client{Timeout: opTimeout, Transport: &http.Transport{DisableKeepAlives: true}}}
	server, err := needs.Find(ctx, needs.RabbitMQ)
	if err != nil {
		return nil, fmt.Errorf("find RabbitMQ: %w", err)
	}
	n.sbin = filepath.Dir(server)
	if n.dir, err = os.MkdirTemp("", "tasker-broker-"); err != nil {
		return nil, fmt.Errorf("make the node's directory: %w", err)
	}
	if err := n.open(ctx); err != nil {
		log, _ := os.ReadFile(n.file("output"))
		return nil, errors.Join(fmt.Errorf("start a node: %w\n%s", err, tail(log)), n.close())
	}
	return n, nil
}

func tail(log []byte) []byte { return log[max(0, len(log)-4000):] }

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

// config has what tests need: statistics at once, and no protection of the disk.
const config = `[{rabbit, [{tcp_listeners, [{"127.0.0.1", %d}]}, {ssl_listeners, [{"127.0.0.1", %d}]},
	{ssl_options, [{cacertfile, "%s"}, {certfile, "%s"}, {keyfile, "%s"}]},
	{collect_statistics_interval, 200}, {disk_free_limit, 1000000}]},
 {rabbitmq_management, [{tcp_config, [{ip, "127.0.0.1"}, {port, %d}]},
	{sample_retention_policies, [{global, [{60, 1}]}, {basic, [{60, 1}]}, {detailed, [{10, 1}]}]}]}].
`

func (n *node) open(ctx context.Context) (err error) {
	for _, port := range []*int{&n.epmd, &n.amqp, &n.tls, &n.web, &n.dist} {
		if *port, err = pgcluster.FreePort(ctx); err != nil {
			return err
		}
	}
	if err := certify(n.file("certificate.pem"), n.file("key.pem")); err != nil {
		return err
	}
	text := fmt.Sprintf(config, n.amqp, n.tls, n.file("certificate.pem"), n.file("certificate.pem"), n.file("key.pem"), n.web)
	if err := errors.Join(os.WriteFile(n.file("advanced.config"), []byte(text), 0o600),
		os.WriteFile(n.file("plugins"), []byte("[rabbitmq_management].\n"), 0o600)); err != nil {
		return err
	}
	if n.names, err = n.run("epmd", "-port", strconv.Itoa(n.epmd)); err != nil {
		return err
	}
	return n.start(ctx)
}

// command is one of a program with the node's environment.
func (n *node) command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...) // #nosec G204 -- programs of RabbitMQ
	cmd.Dir = n.dir
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "RABBITMQ_") && !strings.HasPrefix(variable, "ERL_") && !strings.HasPrefix(variable, "HOME=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "HOME="+n.dir, // of the cookie
		"ERL_EPMD_ADDRESS=127.0.0.1", "ERL_EPMD_PORT="+strconv.Itoa(n.epmd),
		"RABBITMQ_NODENAME=tasker@localhost", "RABBITMQ_DIST_PORT="+strconv.Itoa(n.dist),
		"RABBITMQ_MNESIA_BASE="+n.file("mnesia"), "RABBITMQ_LOG_BASE="+n.dir, "RABBITMQ_LOGS=-",
		"RABBITMQ_CONF_ENV_FILE="+n.file("none"), "RABBITMQ_CONFIG_FILE="+cmp.Or(n.config, n.file("none.conf")), "RABBITMQ_GENERATED_CONFIG_DIR="+n.file("generated"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+n.file("advanced.config"), "RABBITMQ_ENABLED_PLUGINS_FILE="+n.file("plugins"),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none", // no spinning
		"RUNNING_UNDER_SYSTEMD=1") // the script becomes the server: one process to end
	cmd.Env = append(cmd.Env, n.env...)
	return cmd
}

// run starts a program that ends with this process.
func (n *node) run(path string, args ...string) (*child.Process, error) {
	output, err := os.OpenFile(n.file("output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the node's output: %w", err)
	}
	defer func() { _ = output.Close() }() // the child has its own copy
	cmd := n.command(context.Background(), path, args...)
	cmd.Stdout, cmd.Stderr = output, output
	return child.Start(cmd, syscall.SIGKILL)
}

// start starts the server and waits until it serves clients and answers requests.
func (n *node) start(ctx context.Context) (err error) {
	if n.server, err = n.run(filepath.Join(n.sbin, "rabbitmq-server")); err != nil {
		return err
	}
	for {
		err := n.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-n.server.Done():
			return fmt.Errorf("it ended: %w", err)
		default:
		}
		if late := lifecycle.Pause(ctx, 50*time.Millisecond); late != nil {
			return fmt.Errorf("not ready in time: %w (last answer: %w)", late, err)
		}
	}
}

func (n *node) ready(ctx context.Context) error {
	for _, port := range []int{n.amqp, n.tls} {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		_ = conn.Close()
	}
	if n.config != "" {
		return nil // its users may not call the API
	}
	return n.call(ctx, http.MethodGet, "/overview", nil, nil)
}

// kill ends the server at once.
func (n *node) kill() {
	if n.server != nil {
		_ = n.server.Signal(syscall.SIGKILL) // it may have ended
		<-n.server.Done()
		n.server = nil
	}
}

// close ends everything. Nothing of it is needed any more.
func (n *node) close() error {
	n.kill()
	if n.names != nil {
		_ = n.names.Signal(syscall.SIGKILL)
		<-n.names.Done()
	}
	if err := os.RemoveAll(n.dir); err != nil {
		return fmt.Errorf("remove the node's directory: %w", err)
	}
	return nil
}
