package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config describes a [Client]. BaseURL is required, unless there is a Transport.
type Config struct {
	BaseURL string // such as http://localhost:8080; a path is kept as a prefix
	// Timeout bounds each attempt, plus the wait for a task. Default 30 s.
	Timeout time.Duration
	// MaxRetries is how often a call is repeated after a network error or a
	// 5xx; default 3, negative for never.
	MaxRetries int
	// Token is sent as a bearer token, APIKey in APIKeyHeader (default
	// X-API-Key). Neither is sent when empty.
	Token        string
	APIKey       string
	APIKeyHeader string
	// HTTP does the requests. The default follows no redirects, so that
	// credentials go to BaseURL only.
	HTTP *http.Client
	// Transport carries the calls in place of REST, such as that of client/grpcclient.
	// BaseURL, the credentials and HTTP have no effect then.
	Transport Transport
}

// Client calls the API of an orchestrator, and the health and administration routes of a
// worker. It is safe for concurrent use.
type Client struct {
	cfg       Config
	transport Transport
}

// New returns a client. A base URL that cannot be used is reported by the
// first call.
func New(cfg Config) *Client {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	switch {
	case cfg.MaxRetries == 0:
		cfg.MaxRetries = 3
	case cfg.MaxRetries < 0:
		cfg.MaxRetries = 0
	}
	cfg.APIKeyHeader = cmp.Or(cfg.APIKeyHeader, "X-API-Key")
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if cfg.Transport != nil {
		return &Client{cfg: cfg, transport: cfg.Transport}
	}
	r := &rest{cfg: cfg}
	r.base, r.err = parseBase(cfg.BaseURL)
	return &Client{cfg: cfg, transport: r}
}

func parseBase(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	switch {
	case err != nil:
		// The text may hold a password.
		return nil, errors.New("invalid base URL")
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("invalid base URL %q: want http://host:port", base.Redacted())
	}
	base.RawQuery, base.Fragment = "", ""
	base.Path = strings.TrimSuffix(base.Path, "/")
	return base, nil
}
