package profile

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/tasker-go/tasker/client"
)

// Options choose what [Load] reads; zero values are what the environment says.
type Options struct {
	Worker bool   // how a worker is reached; default: an orchestrator
	Name   string // of the profile; default TASKER_CLIENT_PROFILE, or "default"
	Path   string // of the file; default: the first of the usual places that exists
	Getenv func(name string) string
}

// Profile is how a daemon is reached.
type Profile struct {
	client.Config
	Name string
	Path string // of the file; empty: there is none
	GRPC bool   // BaseURL is that of the gRPC server, see client/grpcclient
	// Usual says that neither the file nor a variable has an address: BaseURL is what is
	// usual on one machine.
	Usual bool

	// What the file says of the profile.
	Description       string
	Namespaces, Tools []string
}

// defaultName is the profile that is applied below every other one.
const defaultName = "default"

// The defaults without any profile.
const (
	defaultTimeout = 30 * time.Second
	defaultRetries = 3
	maxRetries     = 10
)

// ports of the servers on this machine, by daemon and transport.
var ports = map[bool]map[bool]int{false: {false: 8080, true: 9190}, true: {false: 8081, true: 9191}}

func (o Options) withDefaults() Options {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	o.Name = cmp.Or(o.Name, o.Getenv("TASKER_CLIENT_PROFILE"), defaultName)
	return o
}

// Load returns how a daemon is reached: variables over the named profile over the profile
// "default" over what is usual on one machine. Its errors are mistakes of the user, and
// quote no credentials.
func Load(o Options) (*Profile, error) {
	o = o.withDefaults()
	file, err := load(o)
	if err != nil {
		return nil, err
	}
	all, err := file.resolve(o.Name)
	if err != nil {
		return nil, err
	}
	settings, prefix := all.Orchestration, "TASKER_ORCHESTRATION"
	if o.Worker {
		settings, prefix = all.Worker, "TASKER_WORKER"
	}
	p := &Profile{Name: o.Name, Path: file.path, Description: all.Description, Namespaces: all.Namespaces, Tools: all.Tools}
	variable := prefix + "_URL"
	switch transport := cmp.Or(o.Getenv("TASKER_CLIENT_TRANSPORT"), all.Transport, "rest"); transport {
	case "rest":
	case "grpc":
		p.GRPC, variable = true, prefix+"_GRPC_URL"
	default:
		return nil, fmt.Errorf("invalid transport %q: want rest or grpc", transport)
	}
	if p.BaseURL = cmp.Or(o.Getenv(variable), settings.BaseURL); p.BaseURL == "" {
		p.Usual, p.BaseURL = true, fmt.Sprintf("http://localhost:%d", ports[o.Worker][p.GRPC])
	}
	if p.Timeout, err = timeout(o.Getenv(prefix+"_TIMEOUT_MS"), prefix, settings); err != nil {
		return nil, err
	}
	p.MaxRetries = defaultRetries
	if settings.MaxRetries != nil {
		p.MaxRetries = min(*settings.MaxRetries, maxRetries)
	}
	if p.MaxRetries <= 0 {
		p.MaxRetries = -1 // the client takes 0 for its default
	}
	auth := credentials(o.Getenv, prefix, settings.Auth.flat())
	p.Token, p.APIKey, p.APIKeyHeader = auth.Token, auth.Key, auth.HeaderName
	return p, nil
}

func timeout(value, prefix string, settings endpoint) (time.Duration, error) {
	switch {
	case value != "":
		ms, err := strconv.ParseInt(value, 10, 32)
		if err != nil || ms <= 0 {
			return 0, fmt.Errorf("%s_TIMEOUT_MS must be a number of milliseconds above 0, not %q", prefix, value)
		}
		return time.Duration(ms) * time.Millisecond, nil
	case settings.TimeoutMS < 0:
		return 0, fmt.Errorf("timeout_ms of the profile must be above 0")
	case settings.TimeoutMS > 0:
		return time.Duration(settings.TimeoutMS) * time.Millisecond, nil
	}
	return defaultTimeout, nil
}

// credentials of the environment replace those of the profile as a whole.
func credentials(getenv func(string) string, prefix string, profile auth) auth {
	if token := cmp.Or(getenv(prefix+"_AUTH_TOKEN"), getenv("TASKER_AUTH_TOKEN")); token != "" {
		return auth{Token: token}
	}
	if key := getenv("TASKER_API_KEY"); key != "" {
		return auth{Key: key, HeaderName: getenv("TASKER_API_KEY_HEADER")}
	}
	return profile
}
