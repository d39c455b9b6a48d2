package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rootHelp = `tasker-ctl is the operator's tool of Tasker, the workflow engine on PostgreSQL.

Global flags stand before the command: tasker-ctl -o json task list. They are
accepted after it as well, except where a command uses the same letter or name
for itself: in "task create", -p is the priority and -c the correlation id; in
"config" commands, -c and -o are theirs.

Which server to talk to comes from the flags, else from environment variables
(TASKER_ORCHESTRATION_URL, TASKER_WORKER_URL, TASKER_AUTH_TOKEN, TASKER_API_KEY
and others), else from a profile in .config/tasker.toml,
.config/tasker-client.toml, ./tasker-client.toml, ~/.config/tasker/client.toml
or ~/.tasker/client.toml, else it is http://localhost:8080.`

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
	globals := a.globalFlags()
	root.Flags().SortFlags = false
	root.Flags().AddFlagSet(globals)
	for _, d := range []command{a.dev(), a.migrate(), a.task(), a.dlq(), a.template(), a.namespaces(), a.schedule(), a.approval(), a.events(),
		a.taskType(), a.enqueue(), a.config(), a.system(), a.version()} {
		root.AddCommand(a.build(d))
	}
	root.AddCommand(newExitCodesTopic())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	a.prepare(root, globals)
	completeGlobals(a, root)
	return root
}

func (a *app) globalFlags() *pflag.FlagSet {
	g := pflag.NewFlagSet("global", pflag.ContinueOnError)
	g.SortFlags = false
	g.StringVarP(&a.global.config, "config", "c", "", "client configuration `file` with profiles")
	g.StringVarP(&a.global.profile, "profile", "p", "", "profile `name` (default $TASKER_CLIENT_PROFILE or \"default\")")
	g.CountVarP(&a.global.verbose, "verbose", "v", "tell which server is used; twice: every request")
	g.VarP(&a.global.output, "output", "o", "how answers are written: table, json, yaml")
	g.Var(&a.global.output, "format", "the same as --output")
	g.Lookup("format").DefValue = ""
	g.StringVar(&a.global.orchestrationURL, "orchestration-url", "", "`URL` of the orchestrator's REST API")
	g.StringVar(&a.global.workerURL, "worker-url", "", "`URL` of the worker's REST API")
	g.DurationVar(&a.global.timeout, "timeout", 0, "limit for one call (default 30s)")
	return g
}

// prepare walks the commands: it lets groups refuse unknown subcommands, notes
// when a command begins to work, and gives every command the global flags that
// it does not use for itself.
func (a *app) prepare(cmd *cobra.Command, globals *pflag.FlagSet) {
	for _, sub := range cmd.Commands() {
		a.prepare(sub, globals)
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
		shareGlobals(cmd, globals)
	}
}

// globalMark is the annotation of global flags given to a subcommand.
const globalMark = "tasker_global"

func shareGlobals(cmd *cobra.Command, globals *pflag.FlagSet) {
	own := cmd.Flags()
	own.SortFlags = false
	globals.VisitAll(func(f *pflag.Flag) {
		if own.Lookup(f.Name) != nil {
			return
		}
		shared := *f // the same value under a flag of the command's own
		shared.Annotations = map[string][]string{globalMark: {"true"}}
		if own.ShorthandLookup(f.Shorthand) != nil {
			shared.Shorthand = ""
		}
		own.AddFlag(&shared)
	})
}

// refuseUnknown is the argument check of groups.
func refuseUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := "unknown command \"" + args[0] + "\" for \"" + cmd.CommandPath() + "\""
	near := suggestions(cmd, args[0])
	if len(near) == 0 {
		near = elsewhere(cmd.Root(), args[0])
	}
	return seeHelp(cmd, usagef("%s%s", text, didYouMean(near)))
}

// seeHelp makes a mistake on the command line point at the help.
func seeHelp(cmd *cobra.Command, err error) error {
	return hinted{usageError{err}, "see " + cmd.CommandPath() + " --help"}
}
