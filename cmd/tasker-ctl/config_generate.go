package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/config"
)

func newConfigGenerateCommand(a *app) *cobra.Command {
	var context, environment, source, file string
	var validate bool
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Write one merged configuration file for a daemon and an environment",
		Long: `Writes one merged configuration file, to be named by TASKER_CONFIG_PATH.
Without --source-dir it holds every key with its default for the environment and
a comment. With --source-dir it is the merge of that folder's base and
environment files, placeholders kept, documentation tables left out.`,
		Example: "  tasker-ctl config generate -c worker -e production -o worker.toml",
		Args:    arguments(),
		RunE: func(*cobra.Command, []string) error {
			if err := checkContext(context); err != nil {
				return err
			}
			var text []byte
			var err error
			if source == "" {
				text, err = config.Generate(config.Context(context), environment)
			} else {
				text, err = mergeSources(source, config.Context(context), environment)
			}
			if err != nil {
				return usageError{err}
			}
			if err := a.writeDocument(file, text); err != nil {
				return err
			}
			if !validate {
				return nil
			}
			return a.validateGenerated(file, text, config.Context(context), environment)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&context, "context", "c", "", "common, orchestration, worker or complete (required)")
	f.StringVarP(&environment, "environment", "e", "", "development, test or production (required)")
	f.StringVarP(&source, "source-dir", "s", "", "`folder` with base and environments to merge, such as config/tasker")
	f.StringVarP(&file, "output", "o", "", "`file` to write (default stdout)")
	f.BoolVar(&validate, "validate", false, "check what was written")
	required(cmd, "context", "environment")
	completeFlag(cmd, "context", oneOfWords(contextWords()...))
	completeFlag(cmd, "environment", oneOfWords("development", "test", "production"))
	return cmd
}

// required marks flags as required; cobra checks them.
func required(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that does not exist
	}
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
