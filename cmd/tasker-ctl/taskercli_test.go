package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// taskerCommand is a command of Tasker's own tool.
type taskerCommand struct {
	path  string            // empty: the global flags
	flags map[string]string // their letters by their names
}

func readTaskerCLI(t *testing.T) (list []taskerCommand) {
	t.Helper()
	text, err := os.ReadFile("testdata/tasker-cli.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		path, flags, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		c := taskerCommand{path: strings.Trim(path, "-"), flags: map[string]string{}}
		for _, flag := range strings.Fields(flags) {
			letter, name, short := strings.Cut(flag, "/")
			if !short {
				letter, name = "", flag
			}
			c.flags[strings.TrimPrefix(name, "--")] = strings.TrimPrefix(letter, "-")
		}
		list = append(list, c)
	}
	require.Greater(t, len(list), 60)
	return list
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// differences are the code spans of the first column of the table, and whether the
// second one says that there is no such thing here.
func differences(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/use/migrating.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## CLI\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	named := map[string]bool{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(cells[1], -1) {
			named[span[1]] = strings.HasPrefix(strings.TrimSpace(cells[2]), "none")
		}
	}
	return named
}

// lookUp finds a command by its path, and nothing that only answers what to use instead.
func lookUp(root *cobra.Command, path string) *cobra.Command {
	cmd, rest, err := root.Find(strings.Fields(path))
	if err != nil || len(rest) > 0 || cmd.Hidden {
		return nil
	}
	return cmd
}

// missing lists what neither the tree has nor the table names, and what the table says is
// missing although it is there.
func missing(root *cobra.Command, tasker []taskerCommand, named map[string]bool) (missing, stale []string) {
	check := func(there bool, names ...string) {
		for _, name := range names {
			if none, ok := named[name]; ok {
				if there && none {
					stale = append(stale, name)
				}
				return
			}
		}
		if !there {
			missing = append(missing, names[0])
		}
	}
	for _, c := range tasker {
		group, _, _ := strings.Cut(c.path, " ")
		cmd := lookUp(root, c.path)
		check(cmd != nil, strings.TrimSpace(c.path), group)
		for name, letter := range c.flags {
			var flag *pflag.Flag
			if cmd != nil {
				flag = cmd.Flags().Lookup(name)
			}
			path := strings.TrimSpace(c.path + " --" + name)
			if cmd == nil {
				check(false, path, c.path, group)
			} else {
				check(flag != nil && (letter == "" || flagOf(cmd.Flags().ShorthandLookup(letter)) == flagOf(flag)), path)
			}
		}
	}
	return missing, stale
}

// flagOf is the name of a flag, or of the one that it is another name of.
func flagOf(f *pflag.Flag) string {
	if f == nil {
		return ""
	}
	if of := f.Annotations[byAnotherName]; of != nil {
		return of[0]
	}
	return f.Name
}

// Every command and flag of Tasker's tool is here with the same letter, or in the table
// of what differs.
func TestCommandsOfTasker(t *testing.T) {
	t.Parallel()
	absent, stale := missing(testRoot(), readTaskerCLI(t), differences(t))
	require.Empty(t, absent, "neither in the tree nor in the table CLI of docs/use/migrating.md")
	require.Empty(t, stale, "the table says none, but it is here")
}

// A command that goes, and a flag that changes its letter, are found.
func TestMissingCommandsAreFound(t *testing.T) {
	t.Parallel()
	root := testRoot()
	list, _, err := root.Find([]string{"worker", "list"})
	require.NoError(t, err)
	list.Parent().RemoveCommand(list)
	add, _, err := root.Find([]string{"profile", "add"})
	require.NoError(t, err)
	add.Flags().ShorthandLookup("t").Annotations = nil
	absent, _ := missing(root, readTaskerCLI(t), differences(t))
	require.ElementsMatch(t, []string{"worker list", "worker list --namespace", "profile add --transport"}, absent)
}
