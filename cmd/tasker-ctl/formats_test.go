package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
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
	"quota list":          "in the database; TestQuotas",
	"quota set":           "in the database; TestQuotas",
	"quota delete":        "in the database; TestQuotas",
	"auth validate-token": "of a random key; TestTokens",
	"broker drain":        "of a broker; TestBrokerDrain",
	"broker init":         "of a broker; TestBroker",
	"broker status":       "of a broker; TestBroker",
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
	"migrate plan":        "of the database; TestMigrate",
	"migrate status":      "of the database; TestMigrate",
	"migrate up":          "of the database; TestMigrate",
	"migrate verify":      "of the database; TestMigrate",
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

var formatFlag = regexp.MustCompile(`-o (json|yaml) ?`)

// shownInTranscripts is what commands write to stdout in transcripts, by their command lines
// without the format.
func shownInTranscripts(t *testing.T) map[inFormat]map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	require.NoError(t, err)
	a := newApp(nil, nil, nil, func(string) (string, bool) { return "", false })
	root, shown := newRootCommand(a), map[inFormat]map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, block := range strings.Split("\n"+string(text), "\n$ ")[1:] {
			line, output, _ := strings.Cut(block, "\n")
			output, _, _ = strings.Cut("\n"+output, "\n!")
			output, _, _ = strings.Cut(output, "\n[exit")
			line, _, _ = strings.Cut(line, " < ")
			of, ok := commandOf(a, root, split(t, line))
			if output = strings.TrimSpace(output); !ok || output == "" {
				continue
			}
			if shown[of] == nil {
				shown[of] = map[string]string{}
			}
			shown[of][formatFlag.ReplaceAllString(line, "")] = output
		}
	}
	return shown
}

// What is written as YAML is the document that is written as JSON.
func TestYAMLIsTheSameAsJSON(t *testing.T) {
	t.Parallel()
	shown, compared := shownInTranscripts(t), 0
	for of, lines := range shown {
		for line, text := range lines {
			want := shown[inFormat{of.command, formatJSON}][line]
			if of.format != formatYAML || !json.Valid([]byte(want)) { // a series is several documents
				continue
			}
			got, err := yaml.YAMLToJSON([]byte(text))
			require.NoError(t, err, line)
			require.JSONEq(t, want, string(got), line)
			compared++
		}
	}
	require.Greater(t, compared, 60)
}

// commandOf reads a command line as the program does; root is that of a.
func commandOf(a *app, root *cobra.Command, words []string) (inFormat, bool) {
	for len(words) > 0 && strings.Contains(words[0], "=") {
		words = words[1:]
	}
	a.global.output = formatTable
	cmd, rest, err := root.Traverse(words)
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
			if len(shown[inFormat{path, format}]) == 0 {
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
