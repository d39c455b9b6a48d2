package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tasker-go/tasker/internal/tracing"
)

// Transport carries calls of the API to a daemon. It is safe for concurrent use.
type Transport interface {
	// Call makes a call once: a method, a path in unescaped segments, parameters and a JSON
	// body, or nil. It returns what REST answers. A refusal is an [*Error], a failure without
	// an answer a net.Error, which is a *net.OpError with the Op "dial" where nothing was
	// sent, and a call that the transport does not have [ErrNotServed].
	Call(ctx context.Context, method string, path []string, query url.Values, body []byte) ([]byte, error)
}

// ErrNotServed is a call that the configured [Transport] does not have; REST has all.
var ErrNotServed = errors.New("not served over this transport")

// rest is the transport of the REST API.
type rest struct {
	cfg  Config
	base *url.URL
	err  error // makes every call fail
}

// maxAnswer bounds the size of an answer.
const maxAnswer = 64 << 20

// Call implements Transport.
func (t *rest) Call(ctx context.Context, method string, path []string, query url.Values, body []byte) ([]byte, error) {
	resp, err := t.send(ctx, method, path, query, body, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, unread(err)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return nil, newError(resp.StatusCode, resp.Header, answer)
	}
	return answer, nil
}

// send sends a request with the configured credentials and the trace of ctx.
func (t *rest) send(ctx context.Context, method string, path []string, query url.Values, body []byte, header http.Header) (*http.Response, error) {
	if t.err != nil {
		return nil, t.err
	}
	req, err := http.NewRequestWithContext(ctx, method, t.address(query, path...), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header = header
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if t.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+t.cfg.Token)
	}
	if t.cfg.APIKey != "" {
		req.Header.Set(t.cfg.APIKeyHeader, t.cfg.APIKey)
	}
	tracing.Inject(ctx, req.Header)
	return t.cfg.HTTP.Do(req)
}

// unread is an answer that has not arrived as a whole.
func unread(err error) error { return &net.OpError{Op: "read", Net: "tcp", Err: err} }

// address appends escaped path segments to the base.
func (t *rest) address(query url.Values, segments ...string) string {
	var path strings.Builder
	path.WriteString(strings.TrimSuffix(t.base.EscapedPath(), "/"))
	for _, s := range segments {
		path.WriteByte('/')
		path.WriteString(escapeSegment(s))
	}
	u := *t.base
	u.RawPath = path.String()
	u.Path, _ = url.PathUnescape(u.RawPath)
	u.RawQuery = query.Encode()
	return u.String()
}

// escapeSegment escapes one path segment; a segment of dots, which every
// server would take for a step in the path, is escaped as well.
func escapeSegment(s string) string {
	if s == "." || s == ".." {
		return strings.ReplaceAll(s, ".", "%2E")
	}
	return url.PathEscape(s)
}
