package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// withoutGoldens are the commands whose output is in no transcript in the three formats,
// with the reason.
var withoutGoldens = map[string]string{
	"auth generate-keys":  "random; TestTokens",
	"auth generate-token": "random; TestTokens",
	"auth key create":     "random, in the database; TestKeys",
	"auth key list":       "random, in the database; TestKeys",
	"auth key revoke":     "random, in the database; TestKeys",
	"auth validate-token": "of a random key; TestTokens",
	"config dump":         "its own --format; TestDumps",
	"config generate":     "a document of TOML",
	"config reference":    "a document of Markdown; TestReferenceOfKeys",
	"dev":                 "runs until it is interrupted; TestDemo",
	"docs annotated":      "a document of TOML; TestDocumentsOfTheConfiguration",
	"docs index":          "a document of Markdown; TestDocumentsOfTheConfiguration",
	"docs reference":      "its own --format; TestDocumentsOfTheConfiguration",
	"docs section":        "a document of Markdown",
	"generate handler":    "source code",
	"generate scaffold":   "files; TestScaffoldOverwritesNothing",
	"generate types":      "source code",
	"man":                 "files; TestManualPages",
	"migrate down":        "of the database; TestMigrate",
	"migrate status":      "of the database; TestMigrate",
	"migrate up":          "of the database; TestMigrate",
	"profile add":         "a file; TestProfilesAreWritten",
	"profile init":        "a file; TestProfilesAreWritten",
	"system drop-slot":    "of the database; TestDropSlot",
	"task visualize":      "its own --format",
	"template visualize":  "a document of Markdown",
	"top":                 "a screen; golden/top.txt",
	"version":             "of the build",
}

// inFormat is a command and the format of its output.
type inFormat struct {
	command string
	format  outputFormat
}

// shownInTranscripts are the commands that write to stdout in some transcript.
func shownInTranscripts(t *testing.T) map[inFormat]bool {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	require.NoError(t, err)
	shown := map[inFormat]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, block := range strings.Split("\n"+string(text), "\n$ ")[1:] {
			line, output, _ := strings.Cut(block, "\n")
			if output = strings.TrimSpace(output); output == "" || strings.HasPrefix(output, "!") {
				continue
			}
			line, _, _ = strings.Cut(line, " < ")
			if of, ok := commandOf(split(t, line)); ok {
				shown[of] = true
			}
		}
	}
	return shown
}

// commandOf reads a command line as the program does.
func commandOf(words []string) (inFormat, bool) {
	for len(words) > 0 && strings.Contains(words[0], "=") {
		words = words[1:]
	}
	a := newApp(nil, nil, nil, func(string) (string, bool) { return "", false })
	cmd, rest, err := newRootCommand(a).Traverse(words)
	if err != nil || cmd.ParseFlags(rest) != nil {
		return inFormat{}, false
	}
	return inFormat{pathOf(cmd), a.global.output}, true
}

func pathOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), "tasker-ctl ")
}

// Every command that writes data is in the transcripts as a table, as JSON and as YAML, or
// is named above.
func TestEveryCommandHasGoldens(t *testing.T) {
	t.Parallel()
	shown, named := shownInTranscripts(t), maps.Clone(withoutGoldens)
	var missing []string
	for _, cmd := range commands(testRoot()) {
		path := pathOf(cmd)
		if !cmd.IsAvailableCommand() || cmd.HasAvailableSubCommands() || strings.HasPrefix(path, "completion ") || path == "help" {
			continue
		}
		lacks := false
		for _, format := range []outputFormat{formatTable, formatJSON, formatYAML} {
			if !shown[inFormat{path, format}] {
				lacks = true
				if withoutGoldens[path] == "" {
					missing = append(missing, path+" -o "+format.String())
				}
			}
		}
		if lacks {
			delete(named, path)
		}
	}
	slices.Sort(missing)
	require.Empty(t, missing, "in no transcript of testdata/transcripts, and not in withoutGoldens")
	require.Empty(t, named, "in withoutGoldens although there are goldens, or there is no such command")
}
