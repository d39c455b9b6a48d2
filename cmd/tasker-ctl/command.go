package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

// api has the calls of which commands are made: (*api).Tasks is one.
type api = client.Client

// command describes a command, or a group of commands. What all have in common
// is done by build and perform: checking flags and arguments, connecting,
// explaining errors.
type command struct {
	use                  string // its name and its arguments, which argument.go knows
	aliases              []string
	instead              string // what to use in place of a command that Tasker has and this program has not
	short, long, example string
	flags                flags
	either               [][2]string // flags that exclude each other
	// completes takes the place of what the first argument's name offers.
	completes cobra.CompletionFunc
	// check looks at arguments and flags together, before any daemon is asked.
	check func(args []string) error
	// daemon is the one that run asks; nil: the orchestrator.
	daemon *daemon
	// run asks a daemon; local needs none.
	run   runner
	local func(ctx context.Context, args []string) error
	// explain adds to an error what it means for this command.
	explain func(error) error
	// lists says that the command writes a list, which has flags for how it is shown.
	lists    bool
	commands []command
}

// runner is the work of a command that asks a daemon. Its arguments have been
// checked, and names in them been replaced by UUIDs.
type runner func(ctx context.Context, c *api, args []string) error

// query is a call of the API.
type query[T any] func(ctx context.Context, c *api, args []string) (T, error)

// ask makes a runner of a query: show writes the answer where a table is wanted.
func ask[T any](a *app, q query[T], show func(T)) runner {
	return func(ctx context.Context, c *api, args []string) error {
		answer, err := q(ctx, c, args)
		if err != nil {
			return err
		}
		return a.emit(answer, func() { show(answer) })
	}
}

// plainly is a query without arguments.
func plainly[T any](f func(*api, context.Context) (T, error)) query[T] {
	return func(ctx context.Context, c *api, _ []string) (T, error) { return f(c, ctx) }
}

// askList is ask for a list that the API, and so what scripts see, has under a key.
func askList[T any](a *app, q query[[]T], key string, show func([]T)) runner {
	return func(ctx context.Context, c *api, args []string) error {
		list, err := q(ctx, c, args)
		if err != nil {
			return err
		}
		return a.emit(map[string][]T{key: list}, func() { show(list) })
	}
}

// called is a query of a route that the client has no method for; the arguments take the
// places of * in its path.
func called[T any](method, path string, body any) query[T] {
	return func(ctx context.Context, c *api, args []string) (answer T, err error) {
		segments := strings.Split(path, "/")
		for i, segment := range segments {
			if segment == "*" {
				segments[i], args = args[0], args[1:]
			}
		}
		err = c.Call(ctx, method, segments, body, &answer)
		return answer, err
	}
}

// with is a query by options, which the flags have filled in; the arguments are those
// of them that are named.
func with[T, O any](f func(*api, context.Context, O) (T, error), o *O, named ...*string) query[T] {
	return func(ctx context.Context, c *api, args []string) (T, error) {
		for i, field := range named {
			*field = args[i]
		}
		return f(c, ctx, *o)
	}
}

// of is a query about the first argument.
func of[T any](f func(*api, context.Context, string) (T, error)) query[T] {
	return func(ctx context.Context, c *api, args []string) (T, error) { return f(c, ctx, args[0]) }
}

// ofPair is a query about the first two arguments.
func ofPair[T any](f func(c *api, ctx context.Context, first, second string) (T, error)) query[T] {
	return func(ctx context.Context, c *api, args []string) (T, error) {
		return f(c, ctx, args[0], args[1])
	}
}

// ofWith is a query about the first argument by options.
func ofWith[T, O any](f func(*api, context.Context, string, O) (T, error), o *O) query[T] {
	return func(ctx context.Context, c *api, args []string) (T, error) { return f(c, ctx, args[0], *o) }
}

// change completes the description of a command that changes what its first
// argument names, and says why; the rules are for the reason.
func change[T any](a *app, d command, f func(*api, context.Context, string, client.Why) (T, error), show func(T), rules ...rule) command {
	var w client.Why
	d.flags = all(d.flags, why(&w.Reason, &w.Actor, rules...))
	d.run = ask(a, ofWith(f, &w), show)
	return d
}

// build makes a cobra command of a description.
func (a *app) build(d command) *cobra.Command {
	names := strings.Fields(d.use)[1:]
	cmd := &cobra.Command{Use: d.use, Aliases: d.aliases, Short: d.short, Long: d.long, Example: d.example}
	for _, sub := range d.commands {
		cmd.AddCommand(a.build(sub))
	}
	if d.instead != "" {
		return refusing(cmd, d.instead)
	}
	var view *listView
	if d.lists {
		view = &listView{}
		d.flags = append(slices.Clone(d.flags), view.flags()...)
	}
	d.flags.register(cmd)
	if d.run == nil && d.local == nil {
		return cmd
	}
	cmd.Args = arguments(names...)
	if len(d.commands) > 0 {
		cmd.Args = ownOrUnknown(names)
	}
	cmd.ValidArgsFunction = a.completeArguments(names, d.completes)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return a.perform(cmd, d, view, names, args) }
	return cmd
}

// refusing makes a command that is not there, with whatever stands behind it,
// answer with what to use instead.
func refusing(cmd *cobra.Command, instead string) *cobra.Command {
	cmd.Hidden, cmd.DisableFlagParsing = true, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return hinted{usagef("there is no %s here", cmd.CommandPath()), instead}
	}
	return cmd
}

// perform runs a command: flags, arguments and what the command itself checks
// come before the connection.
func (a *app) perform(cmd *cobra.Command, d command, view *listView, names, args []string) error {
	changed := cmd.Flags().Changed
	for _, pair := range d.either {
		if changed(pair[0]) && changed(pair[1]) {
			return usagef("give --%s or --%s, not both", pair[0], pair[1])
		}
	}
	if err := d.flags.read(a, cmd); err != nil {
		return err
	}
	args, err := parseArguments(names, args)
	if err != nil {
		return err
	}
	if d.check != nil {
		if err := d.check(args); err != nil {
			return err
		}
	}
	if err := view.check(a.global.output); err != nil {
		return err
	}
	if d.local != nil {
		return a.listed(cmd.Context(), view, func(ctx context.Context) error { return d.local(ctx, args) })
	}
	asked := orchestrator
	if d.daemon != nil {
		asked = *d.daemon
	}
	c, err := a.client(cmd.Context(), asked)
	if err != nil {
		return err
	}
	err = findArguments(cmd.Context(), c, names, args)
	if err == nil {
		err = d.flags.findNamed(cmd.Context(), c)
	}
	if err != nil {
		return unreachable(asked, err)
	}
	return a.listed(cmd.Context(), view, func(ctx context.Context) error {
		err := d.run(ctx, c, args)
		if err != nil && d.explain != nil {
			err = d.explain(err)
		}
		return unreachable(asked, err)
	})
}

// arguments checks how many arguments there are, and names one that is missing.
// A name in brackets may be left out, one that ends in … takes the rest.
func arguments(names ...string) cobra.PositionalArgs {
	least, most := 0, len(names)
	for _, name := range names {
		if !strings.HasPrefix(name, "[") {
			least++
		}
		if strings.HasSuffix(name, "…") {
			most = 1 << 20
		}
	}
	return func(cmd *cobra.Command, args []string) error {
		name := strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
		switch {
		case len(args) < least:
			return seeHelp(cmd, usagef("%s needs %s", name, strings.Join(names[len(args):least], " ")))
		case len(args) > most:
			return seeHelp(cmd, usagef("%s takes no argument %q", name, args[most]))
		}
		return nil
	}
}

// ownOrUnknown is the argument check of a group that can be called without a command:
// what is near to the name of one is that command, misspelled.
func ownOrUnknown(names []string) cobra.PositionalArgs {
	if slices.Contains(names, "[COMMAND]") {
		return refuseUnknown // it has no arguments of its own
	}
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && len(suggestions(cmd, args[0])) > 0 {
			return refuseUnknown(cmd, args)
		}
		return arguments(names...)(cmd, args)
	}
}

// oneOf lists words for a message: "a, b or c".
func oneOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// wordOf finds a word of the API, whichever case and hyphens it was written
// with: manually_resolved and manually-resolved are ManuallyResolved.
func wordOf(what, text string, words []string) (string, error) {
	plain := strings.NewReplacer("_", "", "-", "")
	same := func(word string) bool { return strings.EqualFold(plain.Replace(text), plain.Replace(word)) }
	if i := slices.IndexFunc(words, same); i >= 0 {
		return words[i], nil
	}
	return "", invalid(what, text, oneOf(words))
}

// invalid is the error of a value that is not what is wanted.
func invalid(what, value, want string) error {
	return usagef("invalid %s %q: want %s", what, value, want)
}
