package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/config"
	daemons "github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/internal/redact"
	"github.com/tasker-go/tasker/internal/wording"
)

func (a *app) config() command {
	return command{
		use: "config", short: "Explain, check, generate and show the configuration of the daemons",
		long: `Explains, checks, generates and shows the configuration of the daemons.`,
		commands: []command{a.configExplain(), a.configValidate(), a.configValidateSources(), a.configGenerate(),
			a.configShow(), a.configDump(), a.configUsage(), a.configReference()},
	}
}

// sourceFlags say which configuration is meant.
func sourceFlags(o *config.Options) flags {
	o.Context = config.ContextComplete
	return all(
		opt(&o.Path, "config-file", "merged configuration `file` (default $TASKER_CONFIG_PATH)", also("config", "c")),
		opt(&o.Root, "source-dir", "`folder` with base and environments (default $TASKER_CONFIG_ROOT)", also("root")),
		opt((*string)(&o.Context), "context", "common, orchestration, worker or complete", aContext, also("t")),
		opt(&o.Environment, "environment,e", "development, test, production or one of your own (default $TASKER_ENV)", anEnvironment),
	)
}

func loadSource(o config.Options) (*config.Loaded, error) {
	if o.Path != "" && o.Root != "" {
		return nil, usagef("--config-file names one merged file, --source-dir a folder of layers: give one of them")
	}
	return config.Load(o)
}

var (
	contextWords = []string{string(config.ContextCommon), string(config.ContextOrchestration),
		string(config.ContextWorker), string(config.ContextComplete)}
	aContext = among(contextWords...)
	// anEnvironment may be one of the operator's own.
	anEnvironment = offering(oneOfWords("development", "test", "production"))
)

// keyExplanation is `config explain` as data.
type keyExplanation struct {
	Key         string            `json:"key"`
	Type        string            `json:"type"`
	Rule        string            `json:"rule"`
	Default     any               `json:"default"`
	Aliases     map[string]string `json:"aliases,omitempty"`
	Description string            `json:"description"`
	Impact      string            `json:"impact"`
	Env         []string          `json:"env"`
	Secret      bool              `json:"secret"`
	Reloadable  bool              `json:"reloadable"`
	Status      string            `json:"status"`
	Reason      string            `json:"reason,omitempty"`
	Sets        []string          `json:"sets,omitempty"`
	Older       bool              `json:"older,omitempty"`
}

func (a *app) configExplain() command {
	var parameter, role, environment string
	return command{
		use: "explain [KEY]", short: "Explain a configuration key, list the keys of a table, or all tables",
		example: "  tasker-ctl config explain common.database.pool.max_connections\n" +
			"  tasker-ctl config explain worker.web",
		flags: all(
			opt(&parameter, "parameter", "the same as KEY", offering(completeConfigKeys), also("p")),
			opt(&role, "context", "only what this one has: common, orchestration, worker or complete", aContext, also("c")),
			opt(&environment, "environment,e", "also show the defaults of this environment", anEnvironment),
		),
		completes: completeConfigKeys,
		local: func(_ context.Context, args []string) error {
			return a.explain(cmp.Or(strings.Join(args, ""), parameter), config.Context(role), environment)
		},
	}
}

// explain describes a key, a table, or all tables, perhaps with the defaults of an
// environment.
func (a *app) explain(name string, role config.Context, environment string) error {
	explained, err := config.Explain(name)
	if err != nil {
		return usageError{err}
	}
	root, _, _ := strings.Cut(name, ".")
	if name != "" && !slices.Contains(role.Roots(), root) {
		return usagef("the context %s has no %s", role, name)
	}
	settings, err := defaultsBelow(name, role, environment)
	if err != nil {
		return err
	}
	var answer any = keysBelow(name, role)
	if k, ok := config.Lookup(name); ok {
		answer = explanationOf(k)
	}
	return a.emit(answer, func() {
		for line := range strings.Lines(explained) {
			if name != "" || slices.ContainsFunc(role.Roots(), func(root string) bool { return strings.HasPrefix(line, "["+root) }) {
				a.printf("%s", line)
			}
		}
		if environment != "" {
			a.printf("\n")
			a.showSettings(settings)
		}
	})
}

// defaultsBelow are the settings of an environment that no file or variable changes.
func defaultsBelow(name string, role config.Context, environment string) ([]config.Setting, error) {
	if environment == "" {
		return nil, nil
	}
	none := func(string) (string, bool) { return "", false }
	loaded, err := config.Load(config.Options{Context: role, Environment: environment, LookupEnv: none})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(loaded.Show(), func(s config.Setting) bool { return !below(s.Key, name) }), nil
}

// below reports whether a key is one of a table, or is the name itself.
func below(key, name string) bool {
	return name == "" || key == name || strings.HasPrefix(key, name+".")
}

func completeConfigKeys(_ *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, k := range config.Keys() {
		if len(args) == 0 && strings.HasPrefix(k.Path, toComplete) {
			words = append(words, k.Path)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

func explanationOf(k config.Key) keyExplanation {
	env := k.Env
	if env == nil {
		env = []string{}
	}
	return keyExplanation{
		Key: k.Path, Type: k.Type, Rule: k.Rule, Default: k.Default, Aliases: k.Aliases,
		Description: k.Description, Impact: k.Impact, Env: env, Secret: k.Secret, Reloadable: k.Reloadable,
		Status: k.Status, Reason: k.Reason, Sets: k.Sets, Older: k.Older,
	}
}

func keysBelow(table string, role config.Context) []keyExplanation {
	list := []keyExplanation{}
	for _, k := range config.Keys() {
		if below(k.Path, table) && slices.Contains(role.Roots(), k.Root) {
			list = append(list, explanationOf(k))
		}
	}
	return list
}

func (a *app) configShow() command {
	source := config.Options{LookupEnv: a.env}
	var changed bool
	return command{
		use: "show [PREFIX]", short: "Show the effective settings and where each came from; secrets are masked",
		flags: all(sourceFlags(&source), opt(&changed, "changed", "only what a file or a variable has set")),
		local: func(_ context.Context, args []string) error {
			loaded, err := loadSource(source)
			if err != nil {
				return err
			}
			prefix := strings.Join(args, "")
			rows := slices.DeleteFunc(loaded.Show(), func(s config.Setting) bool {
				return !strings.HasPrefix(s.Key, prefix) || (changed && s.Default)
			})
			if prefix != "" && len(rows) == 0 && !changed {
				return hinted{usagef("no setting begins with %s", prefix), "see tasker-ctl config reference"}
			}
			return a.emit(rows, func() { a.showSettings(rows) })
		},
	}
}

func (a *app) showSettings(rows []config.Setting) {
	listing(a, func(s *config.Setting) facts {
		return facts{{"KEY", s.Key}, {"VALUE", wording.Clip(s.Value, 80)}, {"ORIGIN", s.Origin},
			{"STATUS", s.Status}}
	})(rows)
}

// configReport is the answer of `config validate`.
type configReport struct {
	OK       bool             `json:"ok"`
	Problems []config.Problem `json:"problems"`
	Warnings []config.Problem `json:"warnings"`
}

func (a *app) configValidate() command {
	source := config.Options{LookupEnv: a.env}
	var strict, explain bool
	return command{
		use: "validate", short: "Check a configuration and list everything that is wrong",
		long: `Checks a configuration and lists everything that is wrong. The exit code is 1 where
a daemon would not start with it: invalid and missing settings, connection strings,
keys and certificates that cannot be read, templates that do not load. No connection
is opened. Variables count as they are set here: without DATABASE_URL and without
common.database.url no daemon starts.`,
		example: "  tasker-ctl config validate --config-file tasker.toml --context worker --strict\n" +
			"  tasker-ctl config validate --source-dir config/tasker -e production",
		flags: all(
			sourceFlags(&source),
			opt(&strict, "strict", "treat warnings as errors"),
			explainErrors(&explain),
		),
		local: func(context.Context, []string) error {
			loaded, err := loadSource(source)
			return a.validateConfig(loaded, err, strict, explain)
		},
	}
}

func explainErrors(explain *bool) flags {
	return opt(explain, "explain-errors", "explain the keys that have problems")
}

func (a *app) configValidateSources() command {
	o := config.Options{Root: "config/tasker", LookupEnv: a.env}
	var explain bool
	return command{
		use: "validate-sources", short: "Check a folder of base and environment files without merging them first",
		flags: all(
			partFlags((*string)(&o.Context), &o.Environment, needed),
			opt(&o.Root, "source-dir", "`folder` with base and environments", also("s")),
			explainErrors(&explain),
		),
		local: func(context.Context, []string) error {
			loaded, err := config.Load(o)
			return a.validateConfig(loaded, err, false, explain)
		},
	}
}

// partFlags say which part of the configuration is meant, and for which environment.
func partFlags(role, environment *string, rules ...rule) flags {
	return all(
		opt(role, "context", "common, orchestration, worker or complete", append(rules, aContext, also("c"))...),
		opt(environment, "environment,e", "development, test or production", append(rules, anEnvironment)...),
	)
}

// validateConfig reports on what was loaded, or on why it could not be.
func (a *app) validateConfig(loaded *config.Loaded, err error, strict, explain bool) error {
	report, err := reportOn(loaded, err)
	if err != nil {
		return err
	}
	report.OK = len(report.Problems) == 0 && (!strict || len(report.Warnings) == 0)
	return a.verdict(report, report.OK, "", func() { a.showConfigReport(&report, explain) })
}

// reportOn is what is wrong with what was loaded; the error is that of files that cannot be
// read.
func reportOn(loaded *config.Loaded, err error) (configReport, error) {
	report := configReport{Problems: []config.Problem{}, Warnings: []config.Problem{}}
	switch invalid, refused := errors.AsType[*config.ValidationError](err); {
	case refused:
		report.Problems = invalid.Problems
	case err != nil:
		return report, err
	default:
		report.judge(loaded)
	}
	return report, nil
}

// judge adds what a daemon refuses to start with to the problems.
func (r *configReport) judge(loaded *config.Loaded) {
	refused := slices.Clone(loaded.Refusals)
	for i := range refused {
		refused[i].Message = "a daemon does not start: " + refused[i].Message
	}
	for _, err := range daemons.Check(loaded) {
		refused = append(refused, config.Problem{Message: "a daemon does not start: " + redact.Text(err.Error())})
	}
	r.Problems = append(r.Problems, refused...)
	r.Warnings = slices.Concat(r.Warnings, loaded.Warnings, loaded.WithoutEffect)
}

func (a *app) showConfigReport(r *configReport, explain bool) {
	for _, p := range r.Problems {
		a.printf("%s\n", p)
		if !explain || p.Key == "" {
			continue
		}
		if explained, err := config.Explain(p.Key); err == nil {
			a.printf("  %s\n", strings.ReplaceAll(strings.TrimRight(explained, "\n"), "\n", "\n  "))
		}
	}
	for _, p := range r.Warnings {
		a.printf("warning: %s\n", p)
	}
	a.printf("%s, %s\n", counted(len(r.Problems), "error"), counted(len(r.Warnings), "warning"))
}

func (a *app) configReference() command {
	var file string
	return command{
		use: "reference", short: "Write the reference of all configuration keys as Markdown",
		flags: outputFile(&file),
		local: func(context.Context, []string) error { return a.writeDocument(file, config.ReferenceMarkdown()) },
	}
}

// writeDocument writes to a file, or to stdout when none is named.
func (a *app) writeDocument(file string, text []byte) error {
	if file == "" || file == "-" {
		_, err := a.stdout.Write(text)
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // documents and configuration without secrets are for everyone
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}

func (a *app) configGenerate() command {
	var role, environment, source, file string
	var validate bool
	return command{
		use: "generate", short: "Write one merged configuration file for a daemon and an environment",
		long: `Writes one merged configuration file, to be named by TASKER_CONFIG_PATH.
Without --source-dir it holds every key with its default for the environment and
a comment. With --source-dir it is the merge of that folder's base and
environment files, placeholders kept, documentation tables left out.`,
		example: "  tasker-ctl config generate --context worker -e production -o worker.toml",
		flags: all(
			partFlags(&role, &environment, needed),
			opt(&source, "source-dir", "`folder` with base and environments to merge, such as config/tasker", also("s")),
			outputFile(&file),
			opt(&validate, "validate", "refuse what a daemon would not start with, as config validate does"),
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

// validateGenerated refuses what was written as `config validate` does. What went to stdout
// it reads from a temporary file.
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
	report, err := reportOn(config.Load(config.Options{Context: context, Path: file, Environment: environment,
		LookupEnv: a.env}))
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		a.warnf("%s", w)
	}
	if len(report.Problems) > 0 {
		return &config.ValidationError{Problems: report.Problems}
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
	if parse, is := errors.AsType[toml.ParseError](err); is {
		return fmt.Errorf("line %d, column %d: malformed TOML", parse.Position.Line, parse.Position.Col)
	}
	return err
}

// mergeTables lays upper over lower; tables that only document are left out.
func mergeTables(lower, upper map[string]any) {
	for name, value := range upper {
		if config.IsDocs(name, value) {
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
