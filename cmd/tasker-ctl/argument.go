package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/profile"
	"github.com/tasker-go/tasker/internal/logroom"
	"github.com/tasker-go/tasker/workflow"
)

// argument is what an argument of one name means in every command.
type argument struct {
	// parse reads it before any daemon is asked.
	parse func(text string) (string, error)
	// find replaces it with the help of the orchestrator; before are the
	// arguments before it.
	find func(ctx context.Context, c *api, before []string, text string) (string, error)
	// It is completed with words, with what the orchestrator lists, or as the name
	// of a file. The last argument of offer is what has been typed of it.
	words []string
	offer query[[]string]
	file  bool
}

// uuidArgument is the UUID of a thing, or its beginning, which is looked for among those
// that list lists; the hint says where to find one.
func uuidArgument(what, hint string, list query[[]string]) argument {
	parse := func(text string) (string, error) {
		id, err := uuidOrPrefix(what, text)
		if err != nil {
			err = hinted{err, hint}
		}
		return id, err
	}
	return argument{parse: parse, find: amongListed(what, hint, list), offer: list}
}

// namedArguments are those that are not any text, by the names that usage lines give them.
var namedArguments = map[string]argument{
	"TASK":      taskArgument,
	"STEP":      stepArgument,
	"APIKEY":    {parse: func(text string) (string, error) { return uuidOrPrefix("API key", text) }}, // found in the database
	"ENTRY":     entryArgument,
	"TOKEN":     tokenArgument,
	"WORKER":    workerArgument,
	"SCHEDULE":  scheduleArgument,
	"CONSUMER":  consumerArgument,
	"NAMESPACE": {offer: offerNamespaces},
	"ACTION":    {parse: parseAction, words: bulkActions},
	"STATE":     {parse: parseBreakerState, words: breakerWords},
	"MODE":      {parse: parseMode, words: modeWords()},
	"LEVEL":     {parse: parseLogLevel, words: logroom.Levels},
	"FILE":      {file: true},
	"PATH":      {file: true},
}

// argumentNamed knows an argument by its name in a usage line.
func argumentNamed(name string) argument { return namedArguments[strings.Trim(name, "[]…")] }

// argumentAt knows the argument at a place; the last one may be repeated.
func argumentAt(names []string, at int) argument { return argumentNamed(names[min(at, len(names)-1)]) }

func parseArguments(names, args []string) (parsed []string, err error) {
	parsed = slices.Clone(args)
	for i, text := range args {
		if parse := argumentAt(names, i).parse; parse != nil && err == nil {
			parsed[i], err = parse(text)
		}
	}
	return parsed, err
}

func findArguments(ctx context.Context, c *api, names, args []string) (err error) {
	for i, text := range args {
		if find := argumentAt(names, i).find; find != nil && err == nil {
			args[i], err = find(ctx, c, args[:i], text)
		}
	}
	return err
}

// completeArguments offers what the next argument may be; first takes the place
// of what the first one's name offers.
func (a *app) completeArguments(names []string, first cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 && first != nil {
			return first(cmd, args, toComplete)
		}
		next := argument{}
		if len(names) > 0 {
			next = argumentAt(names, len(args))
		}
		switch {
		case next.file:
			return nil, cobra.ShellCompDirectiveDefault
		case len(args) >= len(names):
			return nil, cobra.ShellCompDirectiveNoFileComp
		case next.offer == nil:
			return next.words, cobra.ShellCompDirectiveNoFileComp
		}
		return a.offered(cmd, func(ctx context.Context, c *api) ([]string, error) {
			return next.offer(ctx, c, append(slices.Clone(args), toComplete))
		})
	}
}

func oneOfWords(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

func (a *app) completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return profile.Names(a.profileOptions()), cobra.ShellCompDirectiveNoFileComp
}

// completionTimeout bounds what completion asks a server: a shell that hangs
// is worse than one that does not know.
const completionTimeout = time.Second

// offered completes with what the orchestrator lists, and with nothing where it
// does not answer in time.
func (a *app) offered(cmd *cobra.Command, list func(context.Context, *api) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	e, err := a.endpoint(orchestrator)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	e.Timeout, e.MaxRetries = completionTimeout, -1
	c, err := a.clientOf(e, orchestrator)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	words, _ := list(cmd.Context(), c) // without an answer there is nothing to offer
	return words, cobra.ShellCompDirectiveNoFileComp
}

// completeTemplates offers one part of each template of the namespace that is
// given, or of all.
func (a *app) completeTemplates(part func(*client.TemplateSummary) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		namespace := ""
		if f := cmd.Flags().Lookup("namespace"); f != nil && f.Changed {
			namespace = f.Value.String()
		}
		return a.offered(cmd, func(ctx context.Context, c *api) ([]string, error) {
			return templateParts(ctx, c, namespace, part)
		})
	}
}

// templateParts are the different values of one part of templates.
func templateParts(ctx context.Context, c *api, namespace string, part func(*client.TemplateSummary) string) ([]string, error) {
	words, err := offers(with((*api).Templates, &namespace),
		func(l *client.TemplateList) []client.TemplateSummary { return l.Templates }, part)(ctx, c, nil)
	slices.Sort(words)
	return slices.Compact(words), err
}

func namesOf[T any](items []T, name func(*T) string) []string {
	words := make([]string, len(items))
	for i := range items {
		words[i] = name(&items[i])
	}
	return words
}

func byName(t *client.TemplateSummary) string      { return t.Name }
func byVersion(t *client.TemplateSummary) string   { return t.Version }
func byNamespace(t *client.TemplateSummary) string { return t.Namespace }

func offerNamespaces(ctx context.Context, c *api, _ []string) ([]string, error) {
	return templateParts(ctx, c, "", byNamespace)
}

func taskStateWords() []string {
	return namesOf(workflow.TaskStates(), func(s *workflow.TaskState) string { return s.String() })
}
