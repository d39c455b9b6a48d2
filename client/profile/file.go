package profile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// file is a client configuration file. Tables of other tools in it, such as [cli], have no
// effect.
type file struct {
	path    string
	found   bool // in the current folder
	unknown []string
	Profile map[string]settings `toml:"profile"`
}

// settings is [profile.<name>].
type settings struct {
	Description   string   `toml:"description"`
	Namespaces    []string `toml:"namespaces"`
	Tools         []string `toml:"tools"`
	Transport     string   `toml:"transport"`
	Orchestration endpoint `toml:"orchestration"`
	Worker        endpoint `toml:"worker"`
}

// endpoint is [profile.<name>.orchestration] or its worker twin; zero values are not set.
type endpoint struct {
	BaseURL    string `toml:"base_url"`
	TimeoutMS  int64  `toml:"timeout_ms"`
	MaxRetries *int   `toml:"max_retries"`
	Auth       auth   `toml:"auth"`
}

// auth are credentials in either of two shapes: flat, as worker.orchestration_client.auth
// has them, or as a method with a type (BearerToken, ApiKey) and a value.
type auth struct {
	Token      string `toml:"token"`
	Key        string `toml:"key"`
	HeaderName string `toml:"header_name"`
	Method     struct {
		Type  string `toml:"type"`
		Value any    `toml:"value"`
	} `toml:"method"`
}

// flat is the same in the first shape.
func (a auth) flat() auth {
	f := auth{Token: a.Token, Key: a.Key, HeaderName: a.HeaderName}
	switch value := a.Method.Value.(type) {
	case string:
		if strings.EqualFold(a.Method.Type, "BearerToken") {
			f.Token = value
		}
	case map[string]any:
		if strings.EqualFold(a.Method.Type, "ApiKey") {
			f.Key, _ = value["key"].(string)
			f.HeaderName, _ = value["header_name"].(string)
		}
	}
	return f
}

func (a auth) empty() bool {
	f := a.flat()
	return f.Token == "" && f.Key == "" && f.HeaderName == ""
}

// places lists where client configuration is looked for, first found wins.
func places(home string) []string {
	list := []string{
		filepath.Join(".config", "tasker.toml"),
		filepath.Join(".config", "tasker-client.toml"),
		"tasker-client.toml",
	}
	if home != "" {
		list = append(list, filepath.Join(home, ".config", "tasker", "client.toml"), filepath.Join(home, ".tasker", "client.toml"))
	}
	return list
}

// load reads the file that is asked for, or the first of the usual places that exists;
// without any it returns an empty file.
func load(o Options) (file, error) {
	if o.Path != "" {
		return read(o.Path)
	}
	for _, path := range places(o.Getenv("HOME")) {
		f, err := read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		f.found = !filepath.IsAbs(path) && !inside(o.Getenv("HOME"))
		return f, err
	}
	return file{}, nil
}

// inside reports whether the current folder is home, whose files are the user's own.
func inside(home string) bool {
	current, err := os.Getwd()
	return err == nil && current == filepath.Clean(home)
}

func read(path string) (file, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- the user names it
	if err != nil {
		return file{}, fmt.Errorf("read the client configuration: %w", err)
	}
	f := file{path: path}
	keys, err := toml.Decode(string(text), &f)
	if err != nil {
		// The parser's own words quote the line, which may hold a credential.
		if parse, is := errors.AsType[toml.ParseError](err); is {
			return f, fmt.Errorf("%s:%d:%d: malformed TOML in the client configuration", path, parse.Position.Line, parse.Position.Col)
		}
		return f, fmt.Errorf("%s: the client configuration does not have the form [profile.<name>] needs: a value has the wrong type", path)
	}
	for _, key := range keys.Undecoded() {
		if key[0] == "profile" {
			f.unknown = append(f.unknown, key.String())
		}
	}
	return f, nil
}

// File is what a client configuration file holds.
type File struct {
	Path    string   // empty: there is none
	Names   []string // of its profiles
	Unknown []string // keys of profiles that have no effect
}

// Find reads the file that [Load] would read.
func Find(o Options) (File, error) {
	f, err := load(o.withDefaults())
	return File{Path: f.path, Names: f.names(), Unknown: f.unknown}, err
}

// Names lists the profiles of the file that [Load] would read; none if it is unreadable.
func Names(o Options) []string {
	f, _ := load(o.withDefaults()) // nothing to list
	return f.names()
}

func (f file) names() []string { return slices.Sorted(maps.Keys(f.Profile)) }

// resolve lays the named profile over the default one. The default need not be there, a
// named one must.
func (f file) resolve(name string) (settings, error) {
	merged := f.Profile[defaultName]
	if name == defaultName {
		return merged, nil
	}
	named, ok := f.Profile[name]
	switch {
	case !ok && f.path == "":
		return merged, fmt.Errorf("unknown profile %q; there is no client configuration file", name)
	case !ok:
		return merged, fmt.Errorf("unknown profile %q; %s has %s", name, f.path, strings.Join(f.names(), ", "))
	}
	merged.Orchestration = merged.Orchestration.under(named.Orchestration)
	merged.Worker = merged.Worker.under(named.Worker)
	merged.Transport = cmp.Or(named.Transport, merged.Transport)
	merged.Description, merged.Namespaces, merged.Tools = named.Description, named.Namespaces, named.Tools
	return merged, nil
}

// under returns the settings with those of upper laid over them. Credentials belong
// together: a profile that has any replaces all.
func (e endpoint) under(upper endpoint) endpoint {
	e.BaseURL = cmp.Or(upper.BaseURL, e.BaseURL)
	e.TimeoutMS = cmp.Or(upper.TimeoutMS, e.TimeoutMS)
	e.MaxRetries = cmp.Or(upper.MaxRetries, e.MaxRetries)
	if !upper.Auth.empty() {
		e.Auth = upper.Auth
	}
	return e
}
