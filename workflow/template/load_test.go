package template

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// inFolder makes the files of a table in a new folder and works there.
func inFolder(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
	}
	t.Chdir(dir)
}

func templateNamed(name string) string {
	return "name: " + name + "\nnamespace_name: ns\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: x}}]\n"
}

func TestLoadTemplates(t *testing.T) {
	inFolder(t, map[string]string{
		"config/tasks/a.yaml":               templateNamed("a"),
		"config/tasks/b.yml":                templateNamed("b"),
		"config/tasks/deep/er/c.YAML":       templateNamed("c"),
		"config/tasks/readme.md":            "no template",
		"config/tasks/.hidden/d.yaml":       templateNamed("d"),
		"config/tasks/..2026_01/e.yaml":     templateNamed("e"),
		"config/tasks/broken/bad.yaml":      "name: [",
		"config/tasks/warning/unknown.yaml": templateNamed("w") + "bogus: 1\n",
		"elsewhere/f.yaml":                  templateNamed("f"),
	})
	require.NoError(t, os.Symlink("../../../elsewhere/f.yaml", "config/tasks/deep/link.yaml"))
	require.NoError(t, os.Symlink("..", "config/tasks/loop"))
	require.NoError(t, os.Symlink("config/tasks", "tasks"))

	tests := []struct {
		paths    []string
		loaded   string
		problems string
	}{
		{[]string{"config/tasks/a.yaml"}, "config/tasks/a.yaml", ""},
		{[]string{"config/tasks/a.yaml", "./config/tasks/a.yaml"}, "config/tasks/a.yaml", ""},
		{[]string{"config/tasks/*.{yml,yaml}"}, "config/tasks/a.yaml config/tasks/b.yml", ""},
		{[]string{"config/tasks/**/*.yaml"},
			"config/tasks/a.yaml config/tasks/warning/unknown.yaml",
			"config/tasks/broken/bad.yaml:1:7: error: a [ is never closed [SYNTAX]\nconfig/tasks/deep/link.yaml:?"},
		{[]string{"config/{tasks/a,tasks/nothing}.yaml"}, "config/tasks/a.yaml", ""},
		{[]string{"nothing/**/*.yaml"}, "", "nothing/**/*.yaml: warning: no file matches the pattern [IO]"},
		{[]string{"nothing.yaml"}, "", "nothing.yaml: error: cannot be read: no such file or directory [IO]"},
		{[]string{"config/tasks/[.yaml"}, "", "config/tasks/[.yaml: error: the pattern \"config/tasks/[.yaml\" is malformed [IO]"},
	}
	for _, test := range tests {
		t.Run(strings.Join(test.paths, " "), func(t *testing.T) {
			loaded, problems, err := Load(test.paths...)
			if strings.Contains(test.problems, "link.yaml:?") { // the link is followed
				require.Contains(t, files(loaded), "config/tasks/deep/link.yaml")
				require.ErrorContains(t, err, "config/tasks/broken/bad.yaml:1:7: error: a [ is never closed [SYNTAX]")
				return
			}
			require.Equal(t, test.loaded, files(loaded))
			require.Equal(t, test.problems, problems.String())
			require.Equal(t, strings.Contains(test.problems, "error:"), err != nil)
		})
	}

	loaded, problems, err := Load("config/tasks")
	require.Error(t, err)
	require.Equal(t, "config/tasks/a.yaml config/tasks/b.yml config/tasks/deep/er/c.YAML config/tasks/deep/link.yaml config/tasks/warning/unknown.yaml", files(loaded))
	require.Len(t, problems, 2)

	loaded, _, err = Load("tasks") // a link to a folder that is named itself
	require.Error(t, err)
	require.Equal(t, "tasks/a.yaml tasks/b.yml tasks/deep/er/c.YAML tasks/deep/link.yaml tasks/warning/unknown.yaml", files(loaded))

	loaded, _, err = Load(".")
	require.Error(t, err)
	require.NotEmpty(t, loaded)
}

func files(loaded []Loaded) string {
	names := make([]string, len(loaded))
	for i, l := range loaded {
		names[i] = l.File
	}
	return strings.Join(names, " ")
}

func TestLoadDuplicateTemplates(t *testing.T) {
	inFolder(t, map[string]string{
		"1.yaml": templateNamed("a"),
		"2.yaml": "# the same, laid out differently\n---\n" + templateNamed("a"),
		"3.yaml": templateNamed("a") + "description: other\n",
		"4.yaml": strings.Replace(templateNamed("a"), "1.0.0", "1.0.1", 1),
	})
	loaded, problems, err := Load(".")
	require.Equal(t, "1.yaml 4.yaml", files(loaded))
	require.EqualError(t, err, "3.yaml: error: ns/a:1.0.0 is declared with other content in 1.yaml; change the version or remove one [DUPLICATE_TEMPLATE]")
	require.Equal(t, "2.yaml: info: ns/a:1.0.0 is declared with the same content in 1.yaml [DUPLICATE_TEMPLATE]", problems[0].String())
}

func TestLoadTooLargeFile(t *testing.T) {
	inFolder(t, map[string]string{"big.yaml": strings.Repeat("#\n", maxTemplateBytes)})
	_, _, err := Load("big.yaml")
	require.ErrorContains(t, err, "TOO_LARGE")
}

func TestMatchGlob(t *testing.T) {
	tests := []struct {
		pattern, name string
		want          bool
	}{
		{"a/**/*.yaml", "a/b.yaml", true},
		{"a/**/*.yaml", "a/b/c/d.yaml", true},
		{"a/**/*.yaml", "b/b.yaml", false},
		{"a/*.yaml", "a/b/c.yaml", false},
		{"**", "a/b", true},
		{"**/b/**", "a/b", true},
		{"**/b/**", "a/c/b/d", true},
		{"a/b?.y[am]*", "a/b1.yaml", true},
		{"./a/*", "a/b", true},
		{"a**/b", "axx/b", true}, // not a whole part: an ordinary *
		{strings.Repeat("**/", 50) + "x", strings.Repeat("a/", 200) + "y", false},
	}
	for _, test := range tests {
		require.Equal(t, test.want, matchGlob(test.pattern, test.name), "%s against %s", test.pattern, test.name)
	}
}

func TestExpandBraces(t *testing.T) {
	tests := map[string]string{
		"a": "a", "a.{yml,yaml}": "a.yml a.yaml", "{a,b}{c,d}": "ac ad bc bd", "{a,{b,c}d}": "a bd cd", "{a": "{a", "a}": "a}", "{}x": "x",
	}
	for pattern, want := range tests {
		got, err := expandBraces(pattern)
		require.NoError(t, err)
		require.ElementsMatch(t, strings.Fields(want), got, pattern)
	}
	for _, pattern := range []string{strings.Repeat("{a,b}", 20), "[", "a/[x"} {
		_, err := expandBraces(pattern)
		require.Error(t, err, pattern)
	}
	_, err := expandBraces("a/[x]/**")
	require.NoError(t, err)
}

// A folder with more than anyone has as templates is read up to the limits.
func TestLoadIsBounded(t *testing.T) {
	big := templateNamed("big") + strings.Repeat("#", maxTemplateBytes-200) + "\n"
	full := map[string]string{"t/z.yaml": templateNamed("z")}
	for i := range maxTemplatesBytes/len(big) + 1 {
		full[fmt.Sprintf("t/big%03d.yaml", i)] = strings.Replace(big, "1.0.0", fmt.Sprint("1.0.", i), 1)
	}
	inFolder(t, full)
	loaded, _, err := Load("t")
	require.EqualError(t, err, "t/z.yaml: error: the template files before this one have more than 64 MiB; it and the rest are not read [TOO_LARGE]")
	require.Len(t, loaded, len(full)-1)

	inFolder(t, nil)
	for i := range maxTemplateFiles + 1 {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%05d.yaml", i), nil, 0o644))
	}
	l := loader{endings: []string{".yaml"}, seen: map[string]bool{}}
	l.find(".")
	require.Len(t, l.files, maxTemplateFiles+1, "one more than are read, to know that there are more")
	l = loader{endings: []string{".json"}, seen: map[string]bool{}, entries: maxEntries - 100}
	l.find(".")
	require.Equal(t, ".: error: there are more than 200000 files and folders in and below the folders that are searched [TOO_LARGE]", l.problems.String())
}
