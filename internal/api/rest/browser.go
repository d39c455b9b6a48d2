package rest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/loopback"
)

// browsers refuses what pages of others make browsers send. A browser reaches each daemon that its
// user reaches, and where that asks for no credentials, the page could do what the user may.
type browsers struct {
	// hosts are those that Host may name besides this machine.
	hosts []string
	// checked says that Host is looked at: a page whose name leads to a loopback address (DNS
	// rebinding) is of the daemon's origin for the browser, but Host still has the name.
	checked bool
	// changes looks at the origins of changes, and admin at those of routes that no other origin
	// may call; nil: any.
	changes, admin *http.CrossOriginProtection
	// cookies looks at the origins of requests by the cookie of a browser session, which browsers add
	// by themselves. No other origin may make them.
	cookies *http.CrossOriginProtection
}

func newBrowsers(cfg Config) (b browsers, err error) {
	b.cookies = http.NewCrossOriginProtection()
	open := cfg.Access.Authenticator == nil || cfg.Access.LogOnly
	b.hosts, b.checked = cfg.Access.Hosts, len(cfg.Access.Hosts) > 0 || open && loopback.Only(cfg.Address)
	if !open {
		return b, nil // browsers add no credentials but the cookie to what others make them send
	}
	b.admin = http.NewCrossOriginProtection()
	if slices.Contains(cfg.Access.Origins, "*") {
		return b, nil
	}
	b.changes = http.NewCrossOriginProtection()
	for _, origin := range cfg.Access.Origins {
		if err := b.changes.AddTrustedOrigin(origin); err != nil {
			return b, fmt.Errorf("allow an origin: %w", err)
		}
	}
	return b, nil
}

type connectionKey struct{}

// connected marks the requests of the server's own connections. Others, those of gRPC and of
// programs that serve the handler themselves, have hosts that the server does not know.
func connected(net.Listener) context.Context {
	return context.WithValue(context.Background(), connectionKey{}, true)
}

// refused returns why a request is not answered; nil: it is.
func (b *browsers) refused(r *http.Request) *failure {
	if b.checked && r.Context().Value(connectionKey{}) != nil && !b.admits(r) {
		return forbidden("Host " + printable(r.Host) + " is not a name of this machine, nor one of web.allowed_hosts")
	}
	protection := b.changes
	if isAdmin(r) {
		protection = b.admin
	}
	if protection != nil && protection.Check(r) != nil {
		return forbidden("A page of another origin may change nothing; see web.cors_allowed_origins")
	}
	return nil
}

// admits reports whether a request names this server. Probes name the address of a pod, and
// requests without a host come from no browser.
func (b *browsers) admits(r *http.Request) bool {
	host := hostOf(r.Host)
	return host == "" || loopback.Name(host) || strings.HasPrefix(r.URL.Path, "/health") && r.URL.Path != "/health/detailed" ||
		slices.ContainsFunc(b.hosts, func(allowed string) bool { return strings.EqualFold(allowed, host) })
}

// hostOf is the name in the header Host, which may have a port.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}

func forbidden(message string) *failure {
	return &failure{status: http.StatusForbidden, code: codeForbidden, message: message}
}

// turnAway answers a request that is refused before its route is known. It reports whether it is.
func (x *exchange) turnAway() bool {
	f := x.server.browsers.refused(x.request)
	if f == nil {
		return false
	}
	if leftOut, due := x.server.refused.due("origin", x.begin); due {
		x.server.audit.Warn("refused", append(x.fields(nil), zap.String("detail", f.message), zap.Int("left_out", leftOut))...)
	}
	x.refuse(f)
	x.end(nil)
	return true
}

// strictTransport is how long browsers use TLS alone for this host, a year.
const strictTransport = "max-age=31536000"

// protect adds headers by which browsers take answers for what they are. Names of this machine are
// those of other servers too, which may have no TLS.
func protect(h http.Header, r *http.Request) {
	h.Set("X-Content-Type-Options", "nosniff")
	if r.TLS != nil && !loopback.Name(hostOf(r.Host)) {
		h.Set("Strict-Transport-Security", strictTransport)
	}
}
