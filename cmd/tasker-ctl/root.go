package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/wording"
)

const rootHelp = `tasker-ctl is the operator's tool of Tasker, the workflow engine on PostgreSQL.

Global flags stand before the command or after it: tasker-ctl task list -o json.
Where a command has -o and --output for a file, the format is --format. A letter
stands for the same flag in all commands; a few also take it as Tasker's own tool
does, and say below their flags that the global one stands before the command.

Which server to talk to comes from the flags, else from environment variables
(TASKER_ORCHESTRATION_URL, TASKER_WORKER_URL, TASKER_AUTH_TOKEN, TASKER_API_KEY
and others), else from a profile in .config/tasker.toml,
.config/tasker-client.toml, ./tasker-client.toml, ~/.config/tasker/client.toml
or ~/.tasker/client.toml, else it is http://localhost:8080. A worker that none of
them names, and that is not at http://localhost:8081, is the live one that the
orchestrator knows.

A file in the current folder may be somebody else's: the token or key of a variable
is not sent to its addresses, nor its own credentials to others.

A UUID may be given by its beginning, where only one thing of its kind has it.`

// newRootCommand builds the tree of commands.
func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "tasker-ctl",
		Short: "Operate Tasker: tasks, schedules, domain events, dead letters, templates, configuration, migrations, fleet",
		Long:  rootHelp,
		// Parents parse their own flags before the subcommand is looked at, so
		// a subcommand may use a letter of a global flag for itself.
		TraverseChildren: true,
		SilenceErrors:    true,
		SilenceUsage:     true,
		Version:          versionText(),
	}
	root.SetVersionTemplate("tasker-ctl {{.Version}}\n")
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return seeHelp(cmd, withNearestFlag(cmd, err)) })
	root.SetUsageFunc(func(cmd *cobra.Command) error { return writeUsage(cmd.OutOrStderr(), cmd) })
	root.Flags().SortFlags = false
	a.globals().register(root)
	root.Flag("format").DefValue = ""
	ours := []command{
		a.dev(), a.migrate(), a.task(), a.dlq(), a.template(), a.namespaces(), a.quotas(), a.policy(), a.limit(), a.audit(),
		a.submission(), a.predict(), a.schedule(), a.approval(), a.events(), a.taskType(), a.enqueue(),
		a.generate(), a.auth(), a.profiles(), a.config(), a.documents(), a.system(), a.broker(), a.workers(),
		a.top(), a.stats(), a.man(), a.version(),
	}
	for _, d := range slices.Concat(ours, notHere()) {
		root.AddCommand(a.build(d))
	}
	root.AddCommand(newExitCodesTopic())
	suggestForeign(root)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	a.prepare(root)
	return root
}

// globals are the flags that every command takes.
func (a *app) globals() flags {
	g, formats := &a.global, offering(oneOfWords("table", "json", "yaml"))
	return all(
		opt(&g.config, "config,c", "client configuration `file` with profiles"),
		opt(&g.profile, "profile,p", "profile `name` (default $TASKER_CLIENT_PROFILE or \"default\")", offering(a.completeProfiles)),
		opt(&g.verbose, "verbose,v", "show which server is used; twice: every request"),
		opt(&g.output, "output,o", "how answers are written: table, json, yaml", formats),
		opt(&g.output, "format", "the same as --output", formats),
		opt(&g.orchestrationURL, "orchestration-url", "`URL` of the orchestrator's REST API"),
		opt(&g.workerURL, "worker-url", "`URL` of the worker's REST API"),
		opt(&g.timeout, "timeout", "limit for one call (default 30s)"),
	)
}

// prepare walks the commands: it lets groups refuse unknown subcommands, notes
// when a command begins to work, and gives every command the global flags that
// it does not use for itself.
func (a *app) prepare(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.prepare(sub)
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = refuseUnknown
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.started = true
			return run(cmd, args)
		}
	}
	if cmd.HasParent() && cmd.Runnable() {
		a.shareGlobals(cmd)
	}
}

// globalMark is the annotation of global flags given to a subcommand.
const globalMark = "tasker_global"

func (a *app) shareGlobals(cmd *cobra.Command) {
	own := cmd.Flags()
	own.SortFlags = false
	for _, o := range a.globals() {
		if own.Lookup(o.name) != nil {
			continue
		}
		if own.ShorthandLookup(o.short) != nil {
			o.short = ""
		}
		flags{o}.register(cmd)
		own.Lookup(o.name).Annotations = map[string][]string{globalMark: {"true"}}
	}
}

// refuseUnknown is the argument check of groups.
func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := "unknown command \"" + args[0] + "\" for \"" + cmd.CommandPath() + "\""
	near := suggestions(cmd, args[0])
	if !cmd.HasParent() && foreign[strings.ToLower(args[0])] != "" || len(near) == 0 {
		near = elsewhere(cmd.Root(), args[0])
	}
	return seeHelp(cmd, usagef("%s%s", text, didYouMean(near)))
}

// seeHelp makes a mistake on the command line point at the help.
func seeHelp(cmd *cobra.Command, err error) error {
	return hinted{usageError{err}, "see " + cmd.CommandPath() + " --help"}
}

// writeUsage is the lower half of every help page. Global flags are spelled
// out once, at the root; a command that uses one of their letters for itself
// says so.
func writeUsage(w io.Writer, cmd *cobra.Command) error {
	fmt.Fprintf(w, "Usage:\n  %s\n", strings.Join(useLines(cmd), "\n  "))
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %-*s  %s\n", cmd.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	own, taken := ownFlags(cmd)
	if own.HasAvailableFlags() {
		title := "Flags"
		if !cmd.HasParent() {
			title = "Global flags"
		}
		fmt.Fprintf(w, "\n%s:\n%s", title, own.FlagUsages())
	}
	if cmd.HasHelpSubCommands() {
		fmt.Fprint(w, "\nTopics:\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAdditionalHelpTopicCommand() {
				fmt.Fprintf(w, "  %-*s  %s\n", cmd.NamePadding(), "help "+sub.Name(), sub.Short)
			}
		}
	}
	if cmd.HasParent() && cmd.Runnable() {
		fmt.Fprint(w, "\nGlobal flags: see tasker-ctl --help.")
		if len(taken) > 0 {
			fmt.Fprintf(w, " Before the command only: %s.", strings.Join(taken, ", "))
		}
		fmt.Fprintln(w)
	}
	return nil
}

// useLines are the ways to call a command. A group shows that one of its commands is
// needed; where it has arguments of its own as well, it can be called in two ways.
func useLines(cmd *cobra.Command) []string {
	path := cmd.CommandPath()
	if !cmd.HasParent() {
		return []string{path + " [global flags] COMMAND"}
	}
	_, arguments, takes := strings.Cut(cmd.Use, " ")
	group := cmd.HasAvailableSubCommands() && arguments != "[COMMAND]"
	if group && !takes {
		return []string{path + " COMMAND"}
	}
	line := path
	if takes {
		line += " " + arguments
	}
	if own, _ := ownFlags(cmd); own.HasAvailableFlags() {
		line += " [flags]"
	}
	if group {
		return []string{line, path + " COMMAND"}
	}
	return []string{line}
}

// ownFlags separates a command's own flags from the global ones it was given,
// and lists the forms of global flags that it has taken.
func ownFlags(cmd *cobra.Command) (own *pflag.FlagSet, taken []string) {
	own = pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	own.SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[globalMark] == nil && f.Name != "help" {
			own.AddFlag(f)
		}
	})
	root := cmd.Root()
	if cmd == root {
		return own, nil
	}
	flags := cmd.Flags()
	isGlobal := func(f *pflag.Flag) bool { return f != nil && f.Annotations[globalMark] != nil }
	root.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" {
			return
		}
		if f.Shorthand != "" && !isGlobal(flags.ShorthandLookup(f.Shorthand)) {
			taken = append(taken, "-"+f.Shorthand)
		}
		if !isGlobal(flags.Lookup(f.Name)) {
			taken = append(taken, "--"+f.Name)
		}
	})
	return own, taken
}

// mostSuggestions bounds a list of suggestions.
const mostSuggestions = 4

func didYouMean(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(near[:min(len(near), mostSuggestions)], " or ") + "?"
}

// suggestions are the subcommands that do what a word of another tool says, else the one
// whose name is near to the word.
func suggestions(cmd *cobra.Command, word string) []string {
	var same, names []string
	of := map[string]string{}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if slices.Contains(sub.SuggestFor, strings.ToLower(word)) {
			same = append(same, sub.Name())
		}
		for _, name := range append([]string{sub.Name()}, sub.Aliases...) {
			names, of[name] = append(names, name), sub.Name()
		}
	}
	if near := wording.Nearest(word, names); same == nil && near != "" {
		same = []string{of[near]}
	}
	slices.Sort(same)
	return same
}

// foreign are words of other tools, with the commands that do the same here.
var foreign = map[string]string{
	"retry": "task run-again,task reset-step,dlq replay", "rerun": "task run-again", "restart": "task run-again", "reset": "task reset-step",
	"ls": "task list,* list", "ps": "task list,* list,top", "stats": "top,dlq stats", "dashboard": "top",
	"show": "task get,* get,* info,* status", "describe": "task get,* get,* info,* show,* status",
	"inspect": "task get,* get,* info,* show,* status", "info": "task get,system info,* get,* show,* status",
	"status": "task get,system health", "get": "task get,dlq get,template info,* show,* status", "cat": "task get,* show", "view": "task get,* show",
	"delete": "task cancel,dlq purge,auth key revoke", "remove": "task cancel,dlq purge,schedule delete", "rm": "task cancel,* delete",
	"stop": "task cancel,namespace pause", "abort": "task cancel", "kill": "task cancel", "start": "task create,namespace resume",
	"new": "* create,* add", "add": "* create,template register", "create": "* add,template register", "submit": "task create", "run": "task create", "apply": "template register",
	"logs": "task logs", "log": "task logs", "history": "task timeline,task step-audit", "trace": "task timeline",
	"tail": "task watch", "follow": "task watch", "wait": "task watch", "bulk": "task action",
	"disable": "schedule pause,namespace pause,template deprecate", "enable": "schedule resume,namespace resume,template undeprecate",
	"check": "* validate,* health", "lint": "* validate", "ping": "* health", "test": "* validate",
	"token": "auth generate-token", "login": "auth generate-token", "keygen": "auth generate-keys", "use": "profile show", "upload": "template register",
}

// suggestForeign lets a word of another tool lead to the commands that do the same, in
// the group where it was looked for; those of the root are for all groups.
func suggestForeign(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		suggestForeign(sub)
		path := strings.TrimPrefix(sub.CommandPath(), "tasker-ctl ")
		for word, commands := range foreign {
			for name := range strings.SplitSeq(commands, ",") {
				anywhere, every := strings.CutPrefix(name, "* ")
				if name == path || every && anywhere == sub.Name() && cmd.HasParent() {
					sub.SuggestFor = append(sub.SuggestFor, word)
				}
			}
		}
	}
}

// elsewhere lists the commands of groups that do what a word of another tool says, and
// those that have it as their name.
func elsewhere(root *cobra.Command, word string) (paths []string) {
	for path := range strings.SplitSeq(foreign[strings.ToLower(word)], ",") {
		if path != "" && !strings.HasPrefix(path, "* ") {
			paths = append(paths, path)
		}
	}
	for _, group := range root.Commands() {
		for _, sub := range group.Commands() {
			path := group.Name() + " " + sub.Name()
			if sub.Name() == word && sub.IsAvailableCommand() && !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// withNearestFlag adds the flags whose names are near to one that is not there.
func withNearestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := wording.Nearest(unknown.GetSpecifiedName(), names); near != "" {
		return fmt.Errorf("%w%s", err, didYouMean([]string{"--" + near}))
	}
	return err
}

// versionReport is the answer of `version`.
type versionReport struct {
	Version       string `json:"version"`
	Commit        string `json:"commit"`
	Modified      bool   `json:"modified"` // built from a changed work tree
	Go            string `json:"go"`
	Platform      string `json:"platform"`
	SchemaVersion int64  `json:"schema_version"` // what `migrate up` leads to
}

func readVersion() versionReport {
	v := versionReport{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(info.Main.Version, v.Version)
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		v.Commit, v.Modified = settings["vcs.revision"], settings["vcs.modified"] == "true"
	}
	return v
}

func versionText() string {
	v := readVersion()
	return fmt.Sprintf("%s %s %s", v.Version, v.Go, v.Platform)
}

func (a *app) version() command {
	return command{
		use: "version", short: "Show the version of this program and its schema",
		local: func(context.Context, []string) error {
			v := readVersion()
			v.SchemaVersion = store.SchemaVersion
			return a.emit(v, func() {
				a.show(facts{
					{"version", v.Version},
					{"commit", v.Commit},
					{"go", v.Go},
					{"platform", v.Platform},
					{"schema", v.SchemaVersion},
				})
			})
		},
	}
}
