package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/grpcclient"
	"github.com/tasker-go/tasker/client/profile"
)

// daemon names one of the two programs that answer REST.
type daemon string

const (
	orchestrator daemon = "orchestrator"
	worker       daemon = "worker"
)

// endpoint works out how to reach a daemon: flags over environment variables over the
// profile over defaults.
func (a *app) endpoint(d daemon) (*profile.Profile, error) {
	p, err := a.endpointOf(a.global.profile, d)
	if p != nil {
		a.logf(1, "%s at %s (profile %s%s)", d, redactedURL(p.BaseURL), p.Name, suffixed(" of ", p.Path))
	}
	return p, err
}

// endpointOf is endpoint with a profile by its name; empty: the one in use.
func (a *app) endpointOf(name string, d daemon) (*profile.Profile, error) {
	o := a.profileOptions()
	o.Name, o.Worker, o.URL = name, d == worker, a.global.orchestrationURL
	if d == worker {
		o.URL = a.global.workerURL
	}
	p, err := profile.Load(o)
	if err != nil {
		return nil, usageError{err}
	}
	p.Timeout = cmp.Or(a.global.timeout, p.Timeout)
	return p, checkURL(d, p.BaseURL)
}

func (a *app) profileOptions() profile.Options {
	return profile.Options{Name: a.global.profile, Path: a.global.config, Getenv: a.getenv}
}

// client returns a client for a daemon. A worker that no flag, variable or profile names,
// and that is not at the usual address, is the one that the orchestrator knows.
func (a *app) client(ctx context.Context, d daemon) (*client.Client, error) {
	e, err := a.endpoint(d)
	if err != nil {
		return nil, err
	}
	if d == worker && e.Usual && a.global.workerURL == "" && !e.GRPC && !a.answers(ctx, e.BaseURL) {
		if c, err := a.onlyWorker(ctx); c != nil || err != nil {
			return c, err
		}
	}
	return a.clientOf(e, d)
}

// answers reports whether something listens at a URL.
func answers(ctx context.Context, base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	conn, err := (&net.Dialer{Timeout: completionTimeout}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// onlyWorker is a client for the only live worker at its registered address, without
// credentials; nil where the orchestrator knows none.
func (a *app) onlyWorker(ctx context.Context) (*client.Client, error) {
	e, err := a.endpoint(orchestrator)
	if err != nil {
		return nil, err
	}
	e.MaxRetries = -1
	c, err := a.clientOf(e, orchestrator)
	if err != nil {
		return nil, err
	}
	list, err := allWorkers(ctx, c, nil)
	if err != nil {
		a.logf(1, "the address of the worker is not known: %v", err)
		return nil, nil // the usual address is tried, and its error is told
	}
	live := slices.DeleteFunc(list, func(w client.WorkerState) bool {
		return w.Status != "active" || w.StoppedAt != nil || w.Address == ""
	})
	switch len(live) {
	case 0:
		return nil, nil
	case 1:
		at, err := a.peers(worker)
		if err != nil {
			return nil, err
		}
		a.logf(1, "worker %s at %s, as it has registered", oneLine(live[0].WorkerID), oneLine(live[0].Address))
		return at(live[0].Address), nil
	}
	places := namesOf(live, func(w *client.WorkerState) string { return oneLine(w.WorkerID + " at " + w.Address) })
	return nil, hinted{usagef("there are several workers: %s", strings.Join(places, ", ")), "name one with --worker-url, a variable or a profile"}
}

func (a *app) clientOf(p *profile.Profile, d daemon) (*client.Client, error) {
	if p.GRPC {
		over, err := grpcclient.New(p.Config, grpcclient.Options{Worker: d == worker})
		if err != nil {
			return nil, usageError{err}
		}
		a.closers = append(a.closers, over)
		p.Transport = over
	} else if a.global.verbose >= 2 {
		p.HTTP = &http.Client{
			Transport:     loggedTransport{a},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return client.New(p.Config), nil
}

// loggedTransport tells of every request on stderr.
type loggedTransport struct{ app *app }

// RoundTrip implements http.RoundTripper.
func (t loggedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	began := t.app.now()
	resp, err := http.DefaultTransport.RoundTrip(req)
	took := t.app.now().Sub(began).Round(time.Millisecond)
	if err != nil {
		t.app.logf(2, "%s %s failed after %s", req.Method, req.URL.Redacted(), took)
		return nil, err
	}
	t.app.logf(2, "%s %s answered %d after %s%s", req.Method, req.URL.Redacted(), resp.StatusCode, took,
		suffixed(", request id ", resp.Header.Get("X-Request-Id")))
	return resp, nil
}

// peerTimeout bounds a call to a daemon at the address that it has registered.
const peerTimeout = 2 * time.Second

// peers returns what makes clients for daemons at the addresses that they have
// registered, with the scheme of the one that is configured. Credentials are for
// addresses that the operator names: a peer at another one gets none.
func (a *app) peers(d daemon) (func(address string) *api, error) {
	p, err := a.endpoint(d)
	if err != nil {
		return nil, err
	}
	configured, err := url.Parse(p.BaseURL)
	if err != nil {
		return nil, err
	}
	return func(address string) *api {
		c := client.Config{Timeout: min(p.Timeout, peerTimeout), MaxRetries: -1}
		c.BaseURL = (&url.URL{Scheme: configured.Scheme, Host: address}).String()
		if address == configured.Host {
			c.Token, c.APIKey, c.APIKeyHeader = p.Token, p.APIKey, p.APIKeyHeader
		}
		return client.New(c)
	}, nil
}

func checkURL(d daemon, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return usagef("the URL of the %s must look like http://host:port, not %q", d, redactedURL(text))
	}
	return nil
}

// redactedURL hides a password in a URL, and all of what is none.
func redactedURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "****"
	}
	return u.Redacted()
}

// isUnreachable reports whether an error means that no answer came. It does not
// ask for a net.Error, which the errors of files are as well.
func isUnreachable(err error) bool {
	return isA[*net.OpError](err) || isA[*url.Error](err) || errors.Is(err, context.DeadlineExceeded)
}

// unreachable adds what can be done when a daemon does not answer.
func unreachable(d daemon, err error) error {
	if err == nil || !isUnreachable(err) {
		return err
	}
	flag := "--orchestration-url"
	if d == worker {
		flag = "--worker-url"
	}
	at := ""
	if call, is := errors.AsType[*url.Error](err); is {
		if u, parseErr := url.Parse(call.URL); parseErr == nil {
			at = " at " + (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
		}
	}
	silence := coded{fmt.Errorf("the %s%s cannot be reached: %s", d, at, silenceOf(err)), exitUnavailable}
	return hinted{silence, "is it running? Name another address with " + flag + ", a variable or a profile"}
}

// silenceOf says why no answer came, without the details of the request.
func silenceOf(err error) string {
	var network net.Error
	var op *net.OpError
	var call *url.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	case errors.As(err, &op):
		return op.Err.Error()
	case errors.As(err, &call):
		return call.Err.Error()
	}
	return err.Error()
}

// suffixed puts a prefix before a text unless the text is empty.
func suffixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
