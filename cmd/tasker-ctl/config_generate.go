package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tasker-go/tasker/config"
)

func (a *app) configGenerate() command {
	var role, environment, source, file string
	var validate bool
	return command{
		use: "generate", short: "Write one merged configuration file for a daemon and an environment",
		long: `Writes one merged configuration file, to be named by TASKER_CONFIG_PATH.
Without --source-dir it holds every key with its default for the environment and
a comment. With --source-dir it is the merge of that folder's base and
environment files, placeholders kept, documentation tables left out.`,
		example: "  tasker-ctl config generate -c worker -e production -o worker.toml",
		flags: all(
			opt(&role, "context,c", "common, orchestration, worker or complete", needed, aContext),
			opt(&environment, "environment,e", "development, test or production", needed, anEnvironment),
			opt(&source, "source-dir,s", "`folder` with base and environments to merge, such as config/tasker"),
			opt(&file, "output,o", "`file` to write (default stdout)"),
			opt(&validate, "validate", "check what was written"),
		),
		local: func(context.Context, []string) error {
			text, err := generated(source, config.Context(role), environment)
			if err != nil {
				return usageError{err}
			}
			if err := a.writeDocument(file, text); err != nil || !validate {
				return err
			}
			return a.validateGenerated(file, text, config.Context(role), environment)
		},
	}
}

// generated is the configuration of the built-in defaults, or of a folder.
func generated(source string, context config.Context, environment string) ([]byte, error) {
	if source == "" {
		return config.Generate(context, environment)
	}
	return mergeSources(source, context, environment)
}

// validateGenerated loads what was written, from a temporary file when it
// went to stdout.
func (a *app) validateGenerated(file string, text []byte, context config.Context, environment string) error {
	if file == "" || file == "-" {
		dir, err := os.MkdirTemp("", "tasker-ctl-*")
		if err != nil {
			return fmt.Errorf("check the configuration: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file = filepath.Join(dir, "generated.toml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return fmt.Errorf("check the configuration: %w", err)
		}
	}
	loaded, err := config.Load(config.Options{Context: context, Path: file, Environment: environment, LookupEnv: a.env})
	if err != nil {
		return err
	}
	for _, w := range loaded.Warnings {
		a.warnf("%s", w)
	}
	return nil
}

// mergeSources merges base and environment files the way a daemon does:
// tables key by key, other values replace. Placeholders stay as they are.
func mergeSources(dir string, context config.Context, environment string) ([]byte, error) {
	if environment == "" || strings.ContainsAny(environment, `/\.`) {
		return nil, fmt.Errorf("the environment %q is not the name of a folder", environment)
	}
	merged := map[string]any{}
	var used []string
	for _, layer := range []string{"base", filepath.Join("environments", environment)} {
		for _, role := range context.Roots() {
			path := filepath.Join(dir, layer, role+".toml")
			var tree map[string]any
			_, err := toml.DecodeFile(path, &tree)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, parseFailure(err))
			}
			mergeTables(merged, tree)
			used = append(used, filepath.ToSlash(path))
		}
	}
	if len(used) == 0 {
		return nil, fmt.Errorf("there is neither base nor environments/%s with %s in %s",
			environment, strings.Join(context.Roots(), ".toml, ")+".toml", dir)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Tasker configuration: context %s, environment %s.\n# Merged from %s.\n\n", context, environment, strings.Join(used, ", "))
	encoder := toml.NewEncoder(&b)
	encoder.Indent = ""
	if err := encoder.Encode(merged); err != nil {
		return nil, fmt.Errorf("write the merged configuration: %w", err)
	}
	return b.Bytes(), nil
}

// parseFailure keeps the place and drops the quoted line, which may hold a
// secret.
func parseFailure(err error) error {
	var parse toml.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("line %d, column %d: malformed TOML", parse.Position.Line, parse.Position.Col)
	}
	return err
}

// mergeTables lays upper over lower; tables that only document are left out.
func mergeTables(lower, upper map[string]any) {
	for name, value := range upper {
		if isDocumentation(name, value) {
			continue
		}
		table, ok := value.(map[string]any)
		if !ok {
			lower[name] = value
			continue
		}
		below, ok := lower[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			lower[name] = below
		}
		mergeTables(below, table)
	}
}

func isDocumentation(name string, value any) bool {
	if !strings.HasSuffix(name, "_docs") {
		return false
	}
	switch value.(type) {
	case map[string]any, []map[string]any:
		return true
	}
	return false
}
