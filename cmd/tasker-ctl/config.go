package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/config"
	daemons "github.com/tasker-go/tasker/daemon"
)

func newConfigCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Explain, check, generate and show the configuration of the daemons",
		Long: `Explains, checks, generates and shows the configuration of the daemons. In
these commands -c, -e, -o, -p and -t are the commands' own letters; give the
global ones before the command.`,
	}
	cmd.AddCommand(
		newConfigExplainCommand(a),
		newConfigValidateCommand(a),
		newConfigGenerateCommand(a),
		newConfigShowCommand(a),
		newConfigReferenceCommand(a),
	)
	return cmd
}

// configSource are the flags that say which configuration is meant.
type configSource struct {
	path, root, context, environment string
}

func (s *configSource) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.path, "config", "c", "", "merged configuration `file` (default $TASKER_CONFIG_PATH)")
	f.StringVar(&s.root, "root", "", "`folder` with base and environments (default $TASKER_CONFIG_ROOT)")
	f.StringVarP(&s.context, "context", "t", string(config.ContextComplete), "common, orchestration, worker or complete")
	f.StringVarP(&s.environment, "environment", "e", "", "development, test, production or one of your own (default $TASKER_ENV)")
	completeFlag(cmd, "context", oneOfWords(contextWords()...))
	completeFlag(cmd, "environment", oneOfWords("development", "test", "production"))
}

func contextWords() []string {
	return []string{
		string(config.ContextCommon), string(config.ContextOrchestration),
		string(config.ContextWorker), string(config.ContextComplete),
	}
}

func checkContext(name string) error {
	if name == "" || config.Context(name).Roots() == nil {
		return usagef("unknown context %q: it must be %s", name, strings.Join(contextWords(), ", "))
	}
	return nil
}

func (s *configSource) load(a *app) (*config.Loaded, error) {
	if err := checkContext(s.context); err != nil {
		return nil, err
	}
	if s.path != "" && s.root != "" {
		return nil, usagef("--config names one merged file, --root a folder of layers: give one of them")
	}
	return config.Load(config.Options{
		Context: config.Context(s.context), Path: s.path, Root: s.root, Environment: s.environment, LookupEnv: a.env,
	})
}

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

func newConfigExplainCommand(a *app) *cobra.Command {
	var parameter string
	cmd := &cobra.Command{
		Use:   "explain [KEY]",
		Short: "Explain a configuration key, list the keys of a table, or all tables",
		Example: "  tasker-ctl config explain common.database.pool.max_connections\n" +
			"  tasker-ctl config explain worker.web",
		Args: arguments("[KEY]"),
		RunE: func(_ *cobra.Command, args []string) error {
			name := parameter
			if len(args) == 1 {
				name = args[0]
			}
			explained, err := config.Explain(name)
			if err != nil {
				return usageError{err}
			}
			if k, ok := config.Lookup(name); ok {
				return a.emit(explanationOf(k), func() { a.printf("%s", explained) })
			}
			return a.emit(keysBelow(name), func() { a.printf("%s", explained) })
		},
		ValidArgsFunction: completeConfigKeys,
	}
	cmd.Flags().StringVarP(&parameter, "parameter", "p", "", "the same as KEY")
	completeFlag(cmd, "parameter", completeConfigKeys)
	return cmd
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
		Key: k.Path, Type: string(k.Type), Rule: k.Rule(), Default: k.Default, Aliases: k.Aliases,
		Description: k.Description, Impact: k.Impact, Env: env, Secret: k.Secret, Reloadable: k.Reloadable,
		Status: string(k.Status), Reason: k.Reason, Sets: k.Sets, Older: k.Older,
	}
}

func keysBelow(table string) []keyExplanation {
	list := []keyExplanation{}
	for _, k := range config.Keys() {
		if table == "" || strings.HasPrefix(k.Path, table+".") {
			list = append(list, explanationOf(k))
		}
	}
	return list
}

// settingRow is one line of `config show`.
type settingRow struct {
	Key     string `json:"key"`
	Value   string `json:"value"` // as TOML writes it
	Origin  string `json:"origin"`
	Default bool   `json:"default"`
	Secret  bool   `json:"secret"`
	Status  string `json:"status"` // active, planned or ignored
}

func newConfigShowCommand(a *app) *cobra.Command {
	var source configSource
	var changed bool
	cmd := &cobra.Command{
		Use:   "show [PREFIX]",
		Short: "Show the effective settings and where each came from; secrets are masked",
		Args:  arguments("[PREFIX]"),
		RunE: func(_ *cobra.Command, args []string) error {
			loaded, err := source.load(a)
			if err != nil {
				return err
			}
			prefix := strings.Join(args, "")
			rows := []settingRow{}
			t := a.newTable("KEY", "VALUE", "ORIGIN", "STATUS")
			for _, s := range loaded.Show() {
				if !strings.HasPrefix(s.Key, prefix) || (changed && s.Default) {
					continue
				}
				rows = append(rows, settingRow{Key: s.Key, Value: s.Value, Origin: s.Origin, Default: s.Default, Secret: s.Secret, Status: string(s.Status)})
				t.row(s.Key, clip(s.Value, 80), s.Origin, string(s.Status))
			}
			if prefix != "" && len(rows) == 0 && !changed {
				return hinted{usagef("no setting begins with %s", prefix), "see tasker-ctl config reference"}
			}
			return a.emit(rows, func() { t.write(a.stdout) })
		},
	}
	source.register(cmd)
	cmd.Flags().BoolVar(&changed, "changed", false, "only what a file or a variable has set")
	return cmd
}

// configReport is the answer of `config validate`.
type configReport struct {
	OK       bool             `json:"ok"`
	Problems []config.Problem `json:"problems"`
	Warnings []config.Problem `json:"warnings"`
}

func newConfigValidateCommand(a *app) *cobra.Command {
	var source configSource
	var strict, explain bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Check a configuration and list everything that is wrong",
		Example: "  tasker-ctl config validate -c tasker.toml -t worker --strict\n" +
			"  tasker-ctl config validate --root config/tasker -e production",
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			loaded, err := source.load(a)
			var invalid *config.ValidationError
			if err != nil && !errors.As(err, &invalid) {
				return err
			}
			var problems, warnings []config.Problem
			if invalid != nil {
				problems = invalid.Problems
			} else {
				warnings = slices.Concat(loaded.Warnings, loaded.WithoutEffect)
				problems, warnings = refusals(loaded, strict, warnings)
			}
			report := configReport{
				OK:       len(problems) == 0 && (!strict || len(warnings) == 0),
				Problems: append([]config.Problem{}, problems...), Warnings: append([]config.Problem{}, warnings...),
			}
			if err := a.emit(report, func() { a.printConfigReport(problems, warnings, explain) }); err != nil {
				return err
			}
			if !report.OK {
				return failure("")
			}
			return nil
		},
	}
	source.register(cmd)
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings, and all that a daemon refuses at its start, as errors")
	cmd.Flags().BoolVar(&explain, "explain-errors", false, "explain the keys that have problems")
	return cmd
}

// refusals sorts what a daemon refuses to start with among the problems of a
// strict validation, and else among the warnings.
func refusals(loaded *config.Loaded, strict bool, warnings []config.Problem) (problems, all []config.Problem) {
	refused := slices.Clone(loaded.Refusals)
	for i := range refused {
		refused[i].Message = "a daemon does not start: " + refused[i].Message
	}
	if strict {
		for _, err := range daemons.Check(loaded) {
			refused = append(refused, config.Problem{Message: "a daemon does not start: " + config.Redact(err.Error())})
		}
		return refused, warnings
	}
	return nil, append(refused, warnings...)
}

func (a *app) printConfigReport(problems, warnings []config.Problem, explain bool) {
	for _, p := range problems {
		a.printf("%s\n", p)
		if !explain || p.Key == "" {
			continue
		}
		if explained, err := config.Explain(p.Key); err == nil {
			a.printf("  %s\n", strings.ReplaceAll(strings.TrimRight(explained, "\n"), "\n", "\n  "))
		}
	}
	for _, p := range warnings {
		a.printf("warning: %s\n", p)
	}
	a.printf("%s, %s\n", counted(len(problems), "error"), counted(len(warnings), "warning"))
}

func newConfigReferenceCommand(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "reference",
		Short: "Write the reference of all configuration keys as Markdown",
		Args:  arguments(),
		RunE: func(*cobra.Command, []string) error {
			return a.writeDocument(file, config.ReferenceMarkdown())
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "`file` to write (default stdout)")
	return cmd
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
