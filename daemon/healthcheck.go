package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tasker-go/tasker/config"
)

// probes are what healthcheck may ask, and their routes.
var probes = map[string]string{"ready": "/health/ready", "live": "/health/live", "accepting": "/health/accepting"}

// healthcheck asks the daemon that runs with the same configuration on this machine, and
// returns the exit code: an image without a shell has no other program to do it.
func healthcheck(p Program, opts config.Options, probe string, timeout time.Duration, w io.Writer) int {
	loaded, err := config.Load(opts)
	if err != nil {
		fmt.Fprintf(w, "%s: %v\n", p.Name, err)
		return exitConfig
	}
	web := loaded.Worker.Web
	if p.Context == config.ContextOrchestration {
		web = loaded.Orchestration.Web.Web
	}
	answer, err := probeRoute(web, probes[probe], timeout)
	if err != nil {
		fmt.Fprintf(w, "%s is not %s: %v\n", p.Name, probe, err)
		return exitFailure
	}
	fmt.Fprintf(w, "%s is %s: %s\n", p.Name, probe, answer)
	return exitOK
}

// probeRoute returns the answer of a route of this machine's daemon, or as an error.
func probeRoute(web config.Web, path string, timeout time.Duration) (string, error) {
	if !web.Enabled {
		return "", errors.New("web.enabled is false, so there is no server to ask")
	}
	address, err := localAddress(web.BindAddress)
	if err != nil {
		return "", err
	}
	scheme, client := "http://", &http.Client{}
	if web.TLSEnabled {
		scheme = "https://"
		if client.Transport, err = trusting(web.ServerTLS); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+address+path, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	text := strings.Join(strings.Fields(string(body)), " ")
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", answer.Status, text)
	}
	return text, nil
}

// localAddress is where a server is reached from its own machine.
func localAddress(bind string) (string, error) {
	host, port, err := net.SplitHostPort(bind)
	if err != nil || port == "0" {
		return "", fmt.Errorf("invalid web.bind_address %q: want a port that is known beforehand", bind)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.Is6() {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}

// trusting trusts exactly the certificate of the server's own file, whatever names it has, and
// shows the same one where the server wants to see one.
func trusting(c config.ServerTLS) (*http.Transport, error) {
	own, err := tls.LoadX509KeyPair(c.TLSCertPath, c.TLSKeyPath)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of the server: %w", err)
	}
	return &http.Transport{TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own},
		InsecureSkipVerify: true, // #nosec G402 -- VerifyConnection compares with the file
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 0 || !bytes.Equal(c.PeerCertificates[0].Raw, own.Certificate[0]) {
				return errors.New("the server shows another certificate than that of tls_cert_path")
			}
			return nil
		},
	}}, nil
}

// graceReserve is for what follows the shutdown timeout: a daemon that exceeds it ends itself
// after overdueAfter, and the supervisor should not kill it before.
const graceReserve = overdueAfter + time.Second

// grace is how long a supervisor should wait between SIGTERM and SIGKILL, in whole seconds.
func grace(p Program, loaded *config.Loaded) int {
	return int((p.ShutdownTimeout(loaded) + graceReserve + time.Second - 1) / time.Second)
}

// command runs a sub-command; done says that there was one.
func command(p Program, opts config.Options, args []string, stdout, w io.Writer) (code int, done bool) {
	if len(args) == 0 {
		return 0, false
	}
	usage := func(format string, values ...any) (int, bool) {
		fmt.Fprintf(w, p.Name+": "+format+"\n", values...)
		return exitConfig, true
	}
	switch rest := args[1:]; args[0] {
	case "healthcheck":
		probe, timeout := "ready", 3*time.Second
		if len(rest) > 0 {
			probe = rest[0]
		}
		if probes[probe] == "" || len(rest) > 1 {
			return usage("invalid arguments %q: want healthcheck [ready|live|accepting]", strings.Join(args, " "))
		}
		return healthcheck(p, opts, probe, timeout, w), true
	case "grace":
		if len(rest) > 0 {
			return usage("invalid arguments %q: want grace", strings.Join(args, " "))
		}
		loaded, err := config.Load(opts)
		if err != nil {
			return usage("%v", err)
		}
		fmt.Fprintln(stdout, grace(p, loaded))
		return exitOK, true
	}
	return usage("unexpected argument %q", args[0])
}
