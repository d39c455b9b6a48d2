package main

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

// profileFile is a client configuration file. Tables of other tools in it,
// such as [cli], are none of our business.
type profileFile struct {
	path    string
	Profile map[string]profileSettings `toml:"profile"`
}

// profileSettings is [profile.<name>].
type profileSettings struct {
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
	file := profileFile{path: path}
	if _, err := toml.Decode(string(text), &file); err != nil {
		// The parser's own words quote the line, which may hold a credential.
		var parse toml.ParseError
		if errors.As(err, &parse) {
			return file, usagef("%s:%d:%d: malformed TOML in the client configuration", path, parse.Position.Line, parse.Position.Col)
		}
		return file, usagef("%s: the client configuration does not have the form [profile.<name>] needs: a value has the wrong type", path)
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
