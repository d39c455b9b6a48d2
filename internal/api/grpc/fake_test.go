package grpc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tasker-go/tasker/internal/auth"
	"github.com/tasker-go/tasker/internal/transcode"
)

// fake is a REST API that answers as it is told.
type fake struct {
	mu      sync.Mutex
	status  int
	header  http.Header
	bodies  []string // one after the other, and the last one again and again
	seen    []*http.Request
	absent  []string // operations that do not exist
	handler http.HandlerFunc
}

func newFake(bodies ...string) *fake {
	return &fake{status: http.StatusOK, header: http.Header{"X-Request-Id": {"r-1"}}, bodies: bodies}
}

func (f *fake) config() Config {
	return Config{Address: "127.0.0.1:0", KeyHeader: "X-API-Key", RequestTimeout: 10 * time.Second, MaxMessageBytes: 1 << 20,
		KeepaliveInterval: time.Minute, KeepaliveTimeout: time.Minute, MaxConcurrentStreams: 100, MaxTaskStreams: 10,
		StreamInterval: 5 * time.Millisecond, Reflection: true, Health: true}
}

// Handler implements Operations.
func (f *fake) Handler() http.Handler { return f }

// Permissions implements Operations: all operations exist but the absent ones.
func (f *fake) Permissions() map[string]auth.Permission {
	known := map[string]auth.Permission{transcode.Reflection: auth.SystemRead}
	for _, r := range routes {
		for _, operation := range append([]string{r.operation}, r.also...) {
			known[operation] = auth.TasksRead
		}
	}
	for _, operation := range f.absent {
		delete(known, operation)
	}
	return known
}

// Admits implements Operations: credentials are good unless they are "wrong".
func (f *fake) Admits(_ context.Context, _ string, h http.Header) (*auth.Principal, error) {
	switch key := h.Get("X-API-Key"); key {
	case "wrong":
		return nil, errors.New("wrong credentials")
	case "":
		return auth.Unchecked(), nil
	default:
		return &auth.Principal{Method: auth.ByKey, Subject: key}, nil
	}
}

// Refuse implements Operations.
func (f *fake) Refuse(w http.ResponseWriter, r *http.Request) {
	if _, err := f.Admits(r.Context(), "", r.Header); err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = w.Write([]byte(`{"error":{"code":"UNAUTHORIZED","message":"wrong credentials"}}`))
}

// ServeHTTP implements http.Handler.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.handler != nil {
		f.handler(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, r)
	for name, values := range f.header {
		w.Header()[name] = values
	}
	w.WriteHeader(f.status)
	body := f.bodies[0]
	if len(f.bodies) > 1 {
		f.bodies = f.bodies[1:]
	}
	_, _ = w.Write([]byte(body))
}

func (f *fake) calls() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen
}

func (f *fake) last() *http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[len(f.seen)-1]
}

// envelopeOf is a failure of REST.
func envelopeOf(code, message string) string {
	return strings.NewReplacer("CODE", code, "TEXT", message).Replace(`{"error":{"code":"CODE","message":"TEXT","task_uuid":"t-1"}}`)
}
