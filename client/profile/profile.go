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
	URL    string // the address, in place of the one that is found
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
//
// A file that is found in the current folder may be somebody else's, such as that of a repository.
// Credentials of the environment never go to its addresses, and its credentials go to no others: a
// *MixedError says so. A file that Options names, and those below HOME, are the user's own.
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
	own := cmp.Or(o.URL, o.Getenv(variable)) // of the user
	if p.BaseURL = cmp.Or(own, settings.BaseURL); p.BaseURL == "" {
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
	auth, source := credentials(o.Getenv, prefix, settings.Auth.flat())
	if file.found && (source == "" && own != "" || source != "" && own == "" && settings.BaseURL != "") && (auth.Token != "" || auth.Key != "") {
		return nil, &MixedError{File: file.path, Variable: variable, Credentials: source}
	}
	p.Token, p.APIKey, p.APIKeyHeader = auth.Token, auth.Key, auth.HeaderName
	return p, nil
}

// MixedError says that credentials and the address to which they would go are of different
// people: those of the user and of whoever wrote the file in the current folder.
type MixedError struct {
	File        string // in the current folder
	Variable    string // that the address may be in
	Credentials string // the variable that they are in; empty: they are in the file
}

// Error says what to do.
func (e *MixedError) Error() string {
	const file = "Or move the file to ~/.config/tasker/client.toml, or name it (--config)"
	if e.Credentials == "" {
		return fmt.Sprintf("the credentials of %s, in the current folder, go to its own addresses only. "+
			"Set TASKER_AUTH_TOKEN or TASKER_API_KEY for yours. %s", e.File, file)
	}
	return fmt.Sprintf("%s is not sent to an address of %s, in the current folder: whoever wrote the file would get it. "+
		"Set %s to the address that you trust. %s", e.Credentials, e.File, e.Variable, file)
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

// credentials of the environment replace those of the profile as a whole; source is their
// variable, empty for those of the profile.
func credentials(getenv func(string) string, prefix string, profile auth) (a auth, source string) {
	for _, name := range []string{prefix + "_AUTH_TOKEN", "TASKER_AUTH_TOKEN"} {
		if token := getenv(name); token != "" {
			return auth{Token: token}, name
		}
	}
	if key := getenv("TASKER_API_KEY"); key != "" {
		return auth{Key: key, HeaderName: getenv("TASKER_API_KEY_HEADER")}, "TASKER_API_KEY"
	}
	return profile, ""
}
