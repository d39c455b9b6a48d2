// Package redisdial has what the parts that use Redis share: how a URL becomes the options
// of a client, and which servers are refused.
//
// What may not enter: commands, which are those parts' own.
package redisdial

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tasker-go/tasker/internal/redact"
	"github.com/tasker-go/tasker/internal/telemetry"
)

// quiet keeps the library, whose logger is one for the process, from writing lines of its
// own between those of a daemon: each of its errors is returned as well.
var quiet = sync.OnceFunc(logging.Disable)

// Options reads a URL: redis, rediss (TLS) or unix, with the parameters of the library and
// cacert, a file with the certificates to trust instead of the system's. name shows in
// CLIENT LIST. timeout bounds connecting and each exchange with the server, which may not be
// retried behind the back of its caller.
func Options(rawURL, name string, timeout time.Duration) (*redis.Options, error) {
	quiet()
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, invalid(err)
	}
	query := u.Query()
	certificates := query.Get("cacert")
	query.Del("cacert")
	u.RawQuery = query.Encode()
	o, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, invalid(err)
	}
	if certificates != "" {
		if err := trust(o, certificates); err != nil {
			return nil, err
		}
	}
	// Of RESP3 the library discards messages whose kind stands on the boundary of a buffer.
	o.ClientName, o.OnConnect, o.Protocol = name, primary, 2
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o, nil
}

// wrongServer says what a server is. It wraps nothing, because the library returns what the errors
// of connecting wrap.
type wrongServer string

// Error implements error.
func (s wrongServer) Error() string { return "invalid Redis server of " + string(s) }

// Reason classifies an error of Redis, as telemetry.Metrics.Broker does.
func Reason(err error) string {
	var answer redis.Error
	var wrong wrongServer
	if errors.As(err, &answer) || errors.As(err, &wrong) {
		return telemetry.BrokerRefused
	}
	return telemetry.BrokerUnreachable
}

// invalid hides the password that the URL in err may have.
func invalid(err error) error {
	return fmt.Errorf("invalid URL of Redis: %s", redact.Text(err.Error()))
}

func trust(o *redis.Options, certificates string) error {
	if o.TLSConfig == nil {
		return errors.New("invalid URL of Redis: cacert without TLS: want rediss")
	}
	pem, err := os.ReadFile(certificates) // #nosec G304 -- the operator names it
	if err != nil {
		return fmt.Errorf("read the certificates for Redis: %w", err)
	}
	o.TLSConfig.RootCAs = x509.NewCertPool()
	if !o.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("invalid certificates for Redis in %s: want PEM", certificates)
	}
	return nil
}

// primary refuses servers on which a part of the fleet would talk to itself alone: a replica
// accepts what is published, and has it reach its own clients only.
func primary(ctx context.Context, conn *redis.Conn) error {
	server, err := conn.Hello(ctx, 2, "", "", "").Result()
	if err != nil {
		return fmt.Errorf("ask Redis for its role: %w", err)
	}
	if mode := server["mode"]; mode != "standalone" {
		return wrongServer(fmt.Sprintf("mode %v: want standalone", mode))
	}
	if role := server["role"]; role != "master" {
		return wrongServer(fmt.Sprintf("role %v: want the primary", role))
	}
	return nil
}
