package needs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// EnvTools is the variable in which the runner of the tests lists the tools that it has found. Go's
// cache of test results keys on the variables that a test reads and on files of its module, but not
// on programs elsewhere: through this variable a test runs again once its tool is installed.
const EnvTools = "TASKER_TEST_TOOLS"

// EnvAll is the variable that leaves nothing out: a missing tool fails a test, and repetitions run.
const EnvAll = "TASKER_TEST_ALL"

const (
	withoutTool = "left out: needs "
	repetition  = "left out: run by make test-all: "
)

// Tool leaves a test out where a tool is missing or too old, and fails it where nothing may be left
// out.
func Tool(t testing.TB, names ...Name) {
	t.Helper()
	_ = os.Getenv(EnvTools)
	var missing, why []string
	for _, name := range names {
		if _, err := Find(t.Context(), name); err != nil {
			missing, why = append(missing, asked(name)), append(why, err.Error())
		}
	}
	switch {
	case len(missing) == 0:
	case strict():
		t.Fatal(strings.Join(why, "\n"))
	default:
		t.Skip(withoutTool + strings.Join(missing, ", ") + ": " + strings.Join(why, "; "))
	}
}

// Path is Tool for one tool, and returns the path of its program.
func Path(t testing.TB, name Name) string {
	t.Helper()
	Tool(t, name)
	path, err := Find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// All leaves out a test that repeats others with other settings, or takes long, unless nothing may be
// left out. why says which.
func All(t testing.TB, why string) {
	t.Helper()
	if !strict() {
		t.Skip(repetition + why)
	}
}

// Reason reads what a skipped test has printed: the tools it lacked ("Node 20 or later"), or that it
// repeats others. Both are zero where it was skipped for another reason.
func Reason(printed string) (missing []string, repeats bool) {
	if strings.Contains(printed, repetition) {
		return nil, true
	}
	_, after, found := strings.Cut(printed, withoutTool)
	if !found {
		return nil, false
	}
	names, _, _ := strings.Cut(after, ": ")
	return strings.Split(names, ", "), false
}

// asked is what a test asks for: "Redis 6.2 or later".
func asked(name Name) string {
	for _, t := range table() {
		if t.name == name && t.least != "" {
			return string(name) + " " + t.least + " or later"
		}
	}
	return string(name)
}

// Find returns the path of a tool's program. The error says what installs it. ctx bounds the program
// that prints its version.
func Find(ctx context.Context, name Name) (path string, err error) {
	at := slices.IndexFunc(table(), func(t tool) bool { return t.name == name })
	if at < 0 {
		return "", fmt.Errorf("invalid tool %q: want one of the table", name)
	}
	path, _, err = table()[at].find(ctx)
	return path, err
}

// Found lists the tools of the table that are there, with their versions.
func Found(ctx context.Context) string {
	var all []string
	for _, t := range table() {
		path, version, err := t.find(ctx)
		if err != nil {
			continue
		}
		if version == "" {
			version = t.printed(ctx, path)
		}
		all = append(all, strings.TrimSpace(string(t.name)+" "+version))
	}
	return strings.Join(all, ", ")
}

// strict reports whether nothing may be left out.
func strict() bool { return os.Getenv("CI") == "true" || os.Getenv(EnvAll) != "" }

// find returns the version only where the oldest is asked for.
func (t tool) find(ctx context.Context) (path, version string, err error) {
	if path = t.place(); path == "" && t.program != "" {
		path, err = exec.LookPath(t.program)
	}
	for _, program := range t.with {
		if _, missing := exec.LookPath(program); missing != nil {
			err = missing
		}
	}
	if path == "" || err != nil {
		return "", "", fmt.Errorf("%s is missing: %s installs it", t.name, t.script)
	}
	if t.least == "" {
		return path, "", nil
	}
	version = t.printed(ctx, path)
	if older(version, t.least) {
		return "", "", fmt.Errorf("invalid %s %q: want %s or later, which %s installs", t.name, version, t.least, t.script)
	}
	return path, version, nil
}

// place is the newest file that the patterns match, "" without one.
func (t tool) place() string {
	for _, pattern := range t.places {
		if !filepath.IsAbs(pattern) {
			root, err := sources()
			if err != nil {
				continue
			}
			pattern = filepath.Join(root, pattern)
		}
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

// sources is the folder of the module, from anywhere below it.
func sources() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the sources: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/tasker-go/tasker\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("find the sources: no go.mod of them is above")
		}
		dir = filepath.Dir(dir)
	}
}

var dotted = regexp.MustCompile(`\d+(\.\d+)+`)

// printed is the version that a program prints, or else that its path has; "" without one.
func (t tool) printed(ctx context.Context, path string) string {
	if len(t.version) == 0 {
		return dotted.FindString(path)
	}
	out, err := exec.CommandContext(ctx, path, t.version...).Output()
	if err != nil {
		return ""
	}
	return dotted.FindString(string(out))
}

// older compares versions number by number.
func older(version, least string) bool {
	return slices.CompareFunc(strings.Split(version, "."), strings.Split(least, "."), func(a, b string) int {
		m, _ := strconv.Atoi(a)
		n, _ := strconv.Atoi(b)
		return cmp.Compare(m, n)
	}) < 0
}
