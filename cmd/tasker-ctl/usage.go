package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// writeUsage is the lower half of every help page. Global flags are spelled
// out once, at the root; a command that uses one of their letters for itself
// says so.
func writeUsage(w io.Writer, cmd *cobra.Command) error {
	fmt.Fprintf(w, "Usage:\n  %s\n", useLine(cmd))
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

// useLine is the command with its arguments; groups show that one of their
// commands is needed.
func useLine(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	if !cmd.HasParent() {
		return line + " [global flags] COMMAND"
	}
	if _, arguments, ok := strings.Cut(cmd.Use, " "); ok {
		line += " " + arguments
	}
	if cmd.HasAvailableSubCommands() && !strings.HasSuffix(line, "COMMAND]") {
		return line + " COMMAND"
	}
	if own, _ := ownFlags(cmd); own.HasAvailableFlags() {
		line += " [flags]"
	}
	return line
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

// suggestions are the subcommands whose names are near to a word.
func suggestions(cmd *cobra.Command, word string) []string {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	near := cmd.SuggestionsFor(word)
	slices.Sort(near)
	return slices.Compact(near)
}

// elsewhere lists the commands that have a name anywhere below root, without
// the root's.
func elsewhere(root *cobra.Command, name string) (paths []string) {
	for _, group := range root.Commands() {
		for _, sub := range group.Commands() {
			if sub.Name() == name && sub.IsAvailableCommand() {
				paths = append(paths, group.Name()+" "+name)
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
	names := &cobra.Command{} // cobra knows nearness for commands only
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names.AddCommand(&cobra.Command{Use: f.Name, Hidden: f.Hidden, Run: func(*cobra.Command, []string) {}})
	})
	near := suggestions(names, unknown.GetSpecifiedName())
	for i := range near {
		near[i] = "--" + near[i]
	}
	return fmt.Errorf("%w%s", err, didYouMean(near))
}
