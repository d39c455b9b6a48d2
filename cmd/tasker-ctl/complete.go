package main

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/workflow"
)

// completeFlag attaches a completion. That fails only for a flag that does not
// exist; the completion is then missing, which the tests notice.
func completeFlag(cmd *cobra.Command, flag string, fn cobra.CompletionFunc) {
	_ = cmd.RegisterFlagCompletionFunc(flag, fn)
}

func oneOfWords(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

// completeGlobals attaches the completions of the global flags, wherever they
// are accepted.
func completeGlobals(a *app, cmd *cobra.Command) {
	isGlobal := func(name string) bool {
		f := cmd.Flags().Lookup(name)
		return f != nil && (!cmd.HasParent() || f.Annotations[globalMark] != nil)
	}
	if isGlobal("output") {
		completeFlag(cmd, "output", oneOfWords("table", "json", "yaml"))
	}
	if isGlobal("format") {
		completeFlag(cmd, "format", oneOfWords("table", "json", "yaml"))
	}
	if isGlobal("profile") {
		completeFlag(cmd, "profile", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			file, _ := a.loadProfiles() // an unreadable file has no profiles to offer
			return slices.Sorted(maps.Keys(file.Profile)), cobra.ShellCompDirectiveNoFileComp
		})
	}
	for _, sub := range cmd.Commands() {
		completeGlobals(a, sub)
	}
}

// completeTemplates offers one part of each template the server knows.
func (a *app) completeTemplates(part func(client.TemplateSummary) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace := ""
		if f := cmd.Flags().Lookup("namespace"); f != nil && f.Changed {
			namespace = f.Value.String()
		}
		var words []string
		for _, t := range a.knownTemplates(cmd.Context(), namespace) {
			words = append(words, part(t))
		}
		slices.Sort(words)
		return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *app) completeTemplateRefs(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return a.completeTemplates(func(t client.TemplateSummary) string {
		return t.Namespace + "/" + t.Name + ":" + t.Version
	})(cmd, args, toComplete)
}

func (a *app) completeNames(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return a.completeTemplates(func(t client.TemplateSummary) string { return t.Name })(cmd, nil, toComplete)
}

func (a *app) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, t := range a.knownTemplates(cmd.Context(), "") {
		words = append(words, t.Namespace)
	}
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}

// completeFirst offers what the orchestrator lists, for the first argument only;
// nothing where it does not answer in time.
func (a *app) completeFirst(cmd *cobra.Command, args []string, list func(context.Context, *client.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, err := a.client(orchestrator)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	words, err := list(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

func taskStateWords() (words []string) {
	for _, s := range workflow.TaskStates() {
		words = append(words, s.String())
	}
	return words
}

func modeWords() []string {
	return []string{
		string(deploymode.Hybrid), string(deploymode.EventDrivenOnly),
		string(deploymode.PollingOnly), string(deploymode.Disabled),
	}
}
