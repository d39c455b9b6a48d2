package brokertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/tasker-go/tasker/internal/pgtest"
)

// Host is a virtual host of the node.
type Host struct {
	// URL and TLSURL connect to it; CA is the file with the certificate of the authority
	// that TLSURL needs.
	URL, TLSURL, CA string
	// Management is where its management API has its queues, without the scheme.
	Management string

	name string
	node *node
}

// Open starts a node for a program that is not a test, such as the benchmark, and returns its
// first virtual host. [Host.Close] ends the node.
func Open(ctx context.Context) (*Host, error) {
	n, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &Host{node: n, CA: n.file("certificate.pem"), URL: fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", n.amqp),
		TLSURL: fmt.Sprintf("amqps://guest:guest@localhost:%d/", n.tls), name: "%2F"}, nil
}

// Configured starts a node of its own with a file of the configuration and variables, and returns
// its address. It ends with the test.
func Configured(t testing.TB, config string, env ...string) (address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	n, err := newNode(ctx, config, env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.close(); err != nil {
			t.Error(err)
		}
	})
	return fmt.Sprintf("127.0.0.1:%d", n.amqp)
}

// Close ends the node of Open and removes its files.
func (h *Host) Close() error { return h.node.close() }

// PID is the id of the node's process, which changes with a restart.
func (h *Host) PID() int { return h.node.server.PID() }

// New returns a virtual host for this test, and starts the node if it is the first.
func New(t testing.TB) *Host {
	t.Helper()
	n := acquire(t)
	h := &Host{name: "test-" + strings.ToLower(rand.Text()[:12]), node: n, CA: n.file("certificate.pem")}
	h.URL = fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/%s", n.amqp, h.name)
	h.TLSURL = fmt.Sprintf("amqps://guest:guest@localhost:%d/%s", n.tls, h.name)
	h.Management = fmt.Sprintf("127.0.0.1:%d/api/queues/%s", n.web, h.name)
	h.do(t, http.MethodPut, "/vhosts/"+h.name, nil, nil)
	h.do(t, http.MethodPut, "/permissions/"+h.name+"/guest", map[string]string{"configure": ".*", "write": ".*", "read": ".*"}, nil)
	t.Cleanup(func() { h.do(t, http.MethodDelete, "/vhosts/"+h.name, nil, nil) })
	return h
}

// Connect returns a connection that ends with the test.
func (h *Host) Connect(t testing.TB) *amqp091.Connection {
	t.Helper()
	conn, err := amqp091.Dial(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Channel returns a channel of a connection of its own, which ends with the test.
func (h *Host) Channel(t testing.TB) *amqp091.Channel {
	t.Helper()
	ch, err := h.Connect(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// Call makes a request to the management API and decodes its answer, if out is not nil. In
// path %s is the name of the host.
func (h *Host) Call(t testing.TB, method, path string, body, out any) {
	t.Helper()
	h.do(t, method, strings.ReplaceAll(path, "%s", h.name), body, out)
}

func (h *Host) do(t testing.TB, method, path string, body, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), opTimeout)
	defer cancel()
	if err := h.node.call(ctx, method, path, body, out); err != nil {
		t.Fatal(err)
	}
}

func (n *node) call(ctx context.Context, method, path string, body, out any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode a request to RabbitMQ: %w", err)
	}
	if body == nil {
		content = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://127.0.0.1:%d/api%s", n.web, path), bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.SetBasicAuth("guest", "guest")
	req.Header.Set("Content-Type", "application/json")
	answer, err := n.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("read the answer of RabbitMQ: %w", err)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("read the answer of RabbitMQ %q: %w", text, err)
	}
	return nil
}

// Connections are the names of the connections to the host.
func (h *Host) Connections(t testing.TB) (names []string) {
	t.Helper()
	var list []struct {
		Name string `json:"name"`
	}
	h.Call(t, http.MethodGet, "/vhosts/%s/connections", nil, &list)
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

// CloseConnections makes the node end the connections to the host, of which there are want.
func (h *Host) CloseConnections(t testing.TB, want int) {
	t.Helper()
	var names []string
	pgtest.Eventually(t, opTimeout, func() (bool, string) {
		names = h.Connections(t)
		return len(names) == want, fmt.Sprintf("connections %q, want %d", names, want)
	})
	for _, name := range names {
		h.Call(t, http.MethodDelete, "/connections/"+url.PathEscape(name), nil, nil)
	}
}

// Kill ends the node at once, as a power failure does. Start starts it again.
func (h *Host) Kill() { h.node.kill() }

// Freeze stops the node from doing anything, until the function it returns is called, or the
// test ends.
func (h *Host) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	if err := h.Signal(syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze the node: %v", err)
	}
	thaw = func() { _ = h.Signal(syscall.SIGCONT) }
	t.Cleanup(thaw)
	return thaw
}

// Signal sends a signal to the node's process.
func (h *Host) Signal(s syscall.Signal) error { return h.node.server.Signal(s) }

// Start starts the node after Kill, with its durable objects.
func (h *Host) Start(t testing.TB) {
	t.Helper()
	if err := h.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Restart is Start for a program that is not a test.
func (h *Host) Restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := h.node.start(ctx); err != nil {
		return fmt.Errorf("start the node again: %w", err)
	}
	return nil
}

// Wipe ends the node at once and starts it again with nothing in it: no virtual host of a test
// is there any more, so it is for a program that is not a test.
func (h *Host) Wipe(ctx context.Context) error {
	h.Kill()
	if err := os.RemoveAll(h.node.file("mnesia")); err != nil {
		return fmt.Errorf("empty the node: %w", err)
	}
	return h.Restart(ctx)
}

// Delete deletes an object of the host with a request to the management API, such as
// exchanges/NAME, while connections stay. One that is not there is no error.
func (h *Host) Delete(ctx context.Context, kind, name string) error {
	err := h.node.call(ctx, http.MethodDelete, "/"+kind+"/"+h.name+"/"+url.PathEscape(name), nil, nil)
	if err != nil && strings.Contains(err.Error(), "404") {
		return nil
	}
	return err
}

// Starve raises the alarm of a node that is short of memory, or ends it.
func (h *Host) Starve(ctx context.Context, short bool) error {
	share := "0.9"
	if short {
		share = "0.000001"
	}
	return h.node.eval(ctx, "vm_memory_monitor:set_vm_memory_high_watermark("+share+").")
}

// FillDisk raises the alarm of a node whose disk is full, or ends it.
func (h *Host) FillDisk(ctx context.Context, full bool) error {
	limit := "1000000" // as configured
	if full {
		limit = "1000000000000000"
	}
	return h.node.eval(ctx, "rabbit_disk_monitor:set_disk_free_limit("+limit+").")
}

// eval has the node evaluate an expression.
func (n *node) eval(ctx context.Context, expression string) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	cmd := n.command(ctx, filepath.Join(n.sbin, "rabbitmqctl"), "eval", expression)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("evaluate %s: %w\n%s", expression, err, out)
	}
	return nil
}

// Block raises the alarm of a node that is short of memory, so that it blocks all publishers,
// until the function it returns is called, or the test ends.
func (h *Host) Block(t testing.TB) (unblock func()) {
	t.Helper()
	return h.alarm(t, h.Starve)
}

// Fill is Block of a node whose disk is full.
func (h *Host) Fill(t testing.TB) (unblock func()) {
	t.Helper()
	return h.alarm(t, h.FillDisk)
}

func (h *Host) alarm(t testing.TB, set func(ctx context.Context, on bool) error) (end func()) {
	t.Helper()
	change := func(on bool) {
		if err := set(context.WithoutCancel(t.Context()), on); err != nil {
			t.Fatal(err)
		}
	}
	change(true)
	t.Cleanup(func() { change(false) })
	return func() { change(false) }
}
