package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/tasker-go/tasker/client"
)

const (
	defaultOrchestrationURL = "http://localhost:8080"
	defaultWorkerURL        = "http://localhost:8081"
	defaultTimeout          = 30 * time.Second
	defaultRetries          = 3
)

// daemon names one of the two programs that answer REST.
type daemon string

const (
	orchestrator daemon = "orchestrator"
	worker       daemon = "worker"
)

// credentials are what is sent with every call; the token goes before the key.
type credentials struct {
	token, apiKey, apiKeyHeader string
}

// endpoint is how one daemon is reached.
type endpoint struct {
	url     string
	timeout time.Duration
	retries int
	auth    credentials
}

// endpoint works out how to reach a daemon: flags over environment variables
// over the profile over defaults.
func (a *app) endpoint(d daemon) (endpoint, error) {
	file, err := a.loadProfiles()
	if err != nil {
		return endpoint{}, err
	}
	name := a.profileName()
	profile, err := file.resolve(name)
	if err != nil {
		return endpoint{}, err
	}
	if transport := cmp.Or(a.getenv("TASKER_CLIENT_TRANSPORT"), profile.Transport, "rest"); transport != "rest" {
		a.warnf("transport %s is asked for; tasker-ctl speaks REST, so the URL must be that of the REST port", transport)
	}
	e, err := a.endpointOf(profile, d)
	a.logf(1, "%s at %s (profile %s%s)", d, redactedURL(e.url), name, suffixed(" of ", file.path))
	return e, err
}

// profileName is the profile in use.
func (a *app) profileName() string {
	return cmp.Or(a.global.profile, a.getenv("TASKER_CLIENT_PROFILE"), defaultProfile)
}

// endpointOf is endpoint with a profile.
func (a *app) endpointOf(profile profileSettings, d daemon) (e endpoint, err error) {
	settings, prefix, flag, fallback := profile.Orchestration, "TASKER_ORCHESTRATION", a.global.orchestrationURL, defaultOrchestrationURL
	if d == worker {
		settings, prefix, flag, fallback = profile.Worker, "TASKER_WORKER", a.global.workerURL, defaultWorkerURL
	}
	e = endpoint{
		url:  cmp.Or(flag, a.getenv(prefix+"_URL"), settings.BaseURL, fallback),
		auth: a.credentials(prefix, settings.Auth.credentials()),
	}
	if e.timeout, err = a.timeout(prefix, settings); err != nil {
		return e, err
	}
	e.retries = defaultRetries
	if settings.MaxRetries != nil {
		e.retries = min(max(*settings.MaxRetries, 0), 10)
	}
	return e, checkURL(d, e.url)
}

func (a *app) timeout(prefix string, settings endpointSettings) (time.Duration, error) {
	switch value := a.getenv(prefix + "_TIMEOUT_MS"); {
	case a.global.timeout != 0:
		return a.global.timeout, nil
	case value != "":
		ms, err := strconv.ParseInt(value, 10, 32)
		if err != nil || ms <= 0 {
			return 0, usagef("%s_TIMEOUT_MS must be a number of milliseconds above 0, not %q", prefix, value)
		}
		return time.Duration(ms) * time.Millisecond, nil
	case settings.TimeoutMS < 0:
		return 0, usagef("timeout_ms of the profile must be above 0")
	case settings.TimeoutMS > 0:
		return time.Duration(settings.TimeoutMS) * time.Millisecond, nil
	}
	return defaultTimeout, nil
}

// credentials of the environment replace those of the profile as a whole.
func (a *app) credentials(prefix string, profile credentials) credentials {
	if token := cmp.Or(a.getenv(prefix+"_AUTH_TOKEN"), a.getenv("TASKER_AUTH_TOKEN")); token != "" {
		return credentials{token: token}
	}
	if key := a.getenv("TASKER_API_KEY"); key != "" {
		return credentials{apiKey: key, apiKeyHeader: a.getenv("TASKER_API_KEY_HEADER")}
	}
	return profile
}

// client returns a client for a daemon.
func (a *app) client(d daemon) (*client.Client, error) {
	e, err := a.endpoint(d)
	if err != nil {
		return nil, err
	}
	return a.clientOf(e), nil
}

func (a *app) clientOf(e endpoint) *client.Client {
	retries := e.retries
	if retries == 0 {
		retries = -1 // the client takes 0 for its default
	}
	c := client.Config{
		BaseURL: e.url, Timeout: e.timeout, MaxRetries: retries,
		Token: e.auth.token, APIKey: e.auth.apiKey, APIKeyHeader: e.auth.apiKeyHeader,
	}
	if a.global.verbose >= 2 {
		c.HTTP = &http.Client{
			Transport:     loggedTransport{a},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return client.New(c)
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
	e, err := a.endpoint(d)
	if err != nil {
		return nil, err
	}
	configured, err := url.Parse(e.url)
	if err != nil {
		return nil, err
	}
	return func(address string) *api {
		auth := credentials{}
		if address == configured.Host {
			auth = e.auth
		}
		base := url.URL{Scheme: configured.Scheme, Host: address}
		return client.New(client.Config{BaseURL: base.String(), Timeout: min(e.timeout, peerTimeout), MaxRetries: -1,
			Token: auth.token, APIKey: auth.apiKey, APIKeyHeader: auth.apiKeyHeader})
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
	var op *net.OpError
	var call *url.Error
	return errors.As(err, &op) || errors.As(err, &call) || errors.Is(err, context.DeadlineExceeded)
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
	var call *url.Error
	if errors.As(err, &call) {
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

// profileFile is a client configuration file. Tables of other tools in it,
// such as [cli], are none of our business.
type profileFile struct {
	path    string
	unknown []string                   // keys of profiles that mean nothing
	Profile map[string]profileSettings `toml:"profile"`
}

// profileSettings is [profile.<name>].
type profileSettings struct {
	Description   string           `toml:"description"`
	Namespaces    []string         `toml:"namespaces"`
	Tools         []string         `toml:"tools"`
	Transport     string           `toml:"transport"`
	Orchestration endpointSettings `toml:"orchestration"`
	Worker        endpointSettings `toml:"worker"`
}

// endpointSettings is [profile.<name>.orchestration] or its worker twin; zero
// values are not set.
type endpointSettings struct {
	BaseURL    string       `toml:"base_url"`
	TimeoutMS  int64        `toml:"timeout_ms"`
	MaxRetries *int         `toml:"max_retries"`
	Auth       authSettings `toml:"auth"`
}

// authSettings are credentials in either of two shapes: flat, as
// worker.orchestration_client.auth has them, or as a method with a type
// (BearerToken, ApiKey) and a value.
type authSettings struct {
	Token      string `toml:"token"`
	Key        string `toml:"key"`
	HeaderName string `toml:"header_name"`
	Method     struct {
		Type  string `toml:"type"`
		Value any    `toml:"value"`
	} `toml:"method"`
}

func (s authSettings) credentials() credentials {
	c := credentials{token: s.Token, apiKey: s.Key, apiKeyHeader: s.HeaderName}
	switch value := s.Method.Value.(type) {
	case string:
		if strings.EqualFold(s.Method.Type, "BearerToken") {
			c.token = value
		}
	case map[string]any:
		if strings.EqualFold(s.Method.Type, "ApiKey") {
			c.apiKey, _ = value["key"].(string)
			c.apiKeyHeader, _ = value["header_name"].(string)
		}
	}
	return c
}

// profilePaths lists where client configuration is looked for, first found
// wins.
func (a *app) profilePaths() []string {
	paths := []string{
		filepath.Join(".config", "tasker.toml"),
		filepath.Join(".config", "tasker-client.toml"),
		"tasker-client.toml",
	}
	if home := a.getenv("HOME"); home != "" {
		paths = append(paths,
			filepath.Join(home, ".config", "tasker", "client.toml"),
			filepath.Join(home, ".tasker", "client.toml"))
	}
	return paths
}

// loadProfiles reads the file of --config, or the first of the usual places
// that exists; without any it returns an empty file.
func (a *app) loadProfiles() (profileFile, error) {
	if a.global.config != "" {
		return readProfiles(a.global.config)
	}
	for _, path := range a.profilePaths() {
		file, err := readProfiles(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return file, err
	}
	return profileFile{}, nil
}

func readProfiles(path string) (profileFile, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return profileFile{}, usageError{fmt.Errorf("read the client configuration: %w", err)}
	}
	return parseProfiles(path, string(text))
}

func parseProfiles(path, text string) (profileFile, error) {
	file := profileFile{path: path}
	known, err := toml.Decode(text, &file)
	if err != nil {
		// The parser's own words quote the line, which may hold a credential.
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return file, usagef("%s:%d:%d: malformed TOML in the client configuration", path, parse.Position.Line, parse.Position.Col)
		}
		return file, usagef("%s: the client configuration does not have the form [profile.<name>] needs: a value has the wrong type", path)
	}
	for _, key := range known.Undecoded() {
		if key[0] == "profile" {
			file.unknown = append(file.unknown, key.String())
		}
	}
	return file, nil
}

// defaultProfile is applied below every other one.
const defaultProfile = "default"

// resolve lays the named profile over the default one. The default need not
// be there, a named one must.
func (f profileFile) resolve(name string) (profileSettings, error) {
	merged := f.Profile[defaultProfile]
	if name == defaultProfile {
		return merged, nil
	}
	named, ok := f.Profile[name]
	if !ok {
		return merged, usagef("unknown profile %q; %s", name, f.known())
	}
	merged.Orchestration = merged.Orchestration.under(named.Orchestration)
	merged.Worker = merged.Worker.under(named.Worker)
	merged.Transport = cmp.Or(named.Transport, merged.Transport)
	merged.Description, merged.Namespaces, merged.Tools = named.Description, named.Namespaces, named.Tools
	return merged, nil
}

func (f profileFile) known() string {
	if f.path == "" {
		return "there is no client configuration file"
	}
	return fmt.Sprintf("%s has %s", f.path, strings.Join(slices.Sorted(maps.Keys(f.Profile)), ", "))
}

// under returns the settings with those of upper laid over them. Credentials
// belong together: a profile that has any replaces all.
func (s endpointSettings) under(upper endpointSettings) endpointSettings {
	s.BaseURL = cmp.Or(upper.BaseURL, s.BaseURL)
	s.TimeoutMS = cmp.Or(upper.TimeoutMS, s.TimeoutMS)
	s.MaxRetries = cmp.Or(upper.MaxRetries, s.MaxRetries)
	if upper.Auth.credentials() != (credentials{}) {
		s.Auth = upper.Auth
	}
	return s
}
