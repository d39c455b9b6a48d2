package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
