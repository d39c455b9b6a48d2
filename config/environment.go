package config

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/deploymode"

	"github.com/tasker-go/tasker/internal/redact"
)

const (
	// maxFileBytes bounds a configuration file, maxSecretBytes a secret file.
	maxFileBytes   = 4 << 20
	maxSecretBytes = 64 << 10

	envDatabaseURL     = "DATABASE_URL"
	envDatabaseURLFile = "DATABASE_URL_FILE"
	envTaskerMode      = "TASKER_DEPLOYMENT_MODE"
	envMode            = "DEPLOYMENT_MODE"
)

// applyEnvironment lays environment variables over the entries. An empty
// variable counts as unset: container tools pass variables through that way.
func (v *values) applyEnvironment() {
	mode, modeFrom := v.deploymentMode()
	for i := range theSchema().keys {
		k := &theSchema().keys[i]
		if len(k.Env) == 0 || !v.inContext(k) {
			continue
		}
		var value, from string
		switch {
		case k.Type == typeMode:
			value, from = mode, modeFrom
		case slices.Contains(k.Env, envDatabaseURLFile):
			value, from = v.databaseURL(k)
		default:
			value, from = firstSet(k.Env, v.lookup)
		}
		if from == "" {
			continue
		}
		v.entries[k.Path] = &entry{
			key: k, value: value, layer: layerEnv, verbatim: true,
			pos: Position{File: "$" + from}, env: []string{from},
		}
	}
}

func firstSet(names []string, lookup lookupFunc) (value, from string) {
	for _, name := range names {
		if v, ok := lookup(name); ok && v != "" {
			return v, name
		}
	}
	return "", ""
}

// deploymentMode reads the mode of all event systems. The older variable
// shares its name with the switch of container entry points (standard,
// migrate-only, …), so it counts only where it names a mode.
func (v *values) deploymentMode() (mode, from string) {
	if name, _ := v.lookup(envTaskerMode); name != "" {
		m, ok := deploymode.Parse(name)
		if ok {
			return string(m), envTaskerMode
		}
		rule := Key{Type: typeMode}.inWords()
		v.findings.fail(Problem{
			Position: Position{File: "$" + envTaskerMode}, Key: envTaskerMode, Value: redact.Text(quote(name)), Rule: rule,
			Message: fmt.Sprintf("%s = %s must be %s", envTaskerMode, redact.Text(quote(name)), rule),
		})
		return "", ""
	}
	name, _ := v.lookup(envMode)
	if m, ok := deploymode.Parse(name); ok {
		return string(m), envMode
	}
	return "", ""
}

// databaseURL reads the connection from the variable or from the file that a
// second variable names, as secrets are mounted into containers.
func (v *values) databaseURL(k *Key) (value, from string) {
	direct, _ := v.lookup(envDatabaseURL)
	path, _ := v.lookup(envDatabaseURLFile)
	if path == "" {
		if direct == "" {
			return "", ""
		}
		return direct, envDatabaseURL
	}
	fail := func(message string) (string, string) {
		v.findings.fail(Problem{Position: Position{File: "$" + envDatabaseURLFile}, Key: k.Path, Rule: k.Rule, Message: message})
		return "", ""
	}
	content, err := readBounded(path, maxSecretBytes)
	if err != nil {
		// What is no file may be the secret itself.
		return fail(fmt.Sprintf("reading the secret file of %s: %s", envDatabaseURLFile, redact.Text(err.Error())))
	}
	secret := strings.TrimRight(content, "\r\n")
	switch {
	case secret == "":
		return fail(fmt.Sprintf("the secret file of %s is empty", envDatabaseURLFile))
	case direct != "" && direct != secret:
		return fail(fmt.Sprintf("%s and %s are both set and differ; set one of them", envDatabaseURL, envDatabaseURLFile))
	}
	return secret, envDatabaseURLFile
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return "", fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return string(data), nil
}
