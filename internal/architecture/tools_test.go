package architecture_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTestsAskForTheirTools: what tests do without a program of others is decided in one place,
// internal/needs.
func TestTestsAskForTheirTools(t *testing.T) {
	t.Parallel()
	report(t, lookedForElsewhere(t, load(t)))
}

var (
	lookedFor = regexp.MustCompile(`exec\.LookPath\(|os\.(?:Getenv|LookupEnv)\("CI"\)`)
	// foreign are programs of the table that tests start by their names.
	foreign   = regexp.MustCompile(`"(?:curl|groff|git|node|pgbouncer|psql|python3|rabbitmq-server|redis-cli|redis-server)"`)
	startedIn = regexp.MustCompile(`exec\.Command(?:Context)?\(.*`)
)

// lookedForElsewhere looks into tests and test kits. A package whose tests start a program of the
// table by its name asks for it.
func lookedForElsewhere(t *testing.T, pkgs []pkg) (wrong []string) {
	t.Helper()
	const room = "internal/needs"
	for _, p := range pkgs {
		files := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		if p.testKit() {
			files = slices.Concat(files, p.GoFiles)
		}
		asks := slices.Contains(slices.Concat(p.Imports, p.TestImports, p.XTestImports), module+"/"+room)
		if p.room() == room || p.room() == "internal/store" { // its tests compare with a release where git has one
			continue
		}
		for _, name := range files {
			if p.room() == "internal/architecture" && name == "tools_test.go" { // it plants them
				continue
			}
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			if found := lookedFor.Find(text); found != nil {
				wrong = append(wrong, p.room()+"/"+name+" has "+string(found)+"…; ask for a tool with needs.Tool")
			}
			for _, start := range startedIn.FindAllString(string(text), -1) {
				if program := foreign.FindString(start); program != "" && !asks {
					wrong = append(wrong, p.room()+"/"+name+" starts "+program+"; ask for it with needs.Tool")
				}
			}
		}
	}
	return wrong
}

func TestPlantedToolsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, body string
		wrong      int
	}{
		"a search of its own":    {"x_test.go", "_, err := exec.LookPath(`curl`)", 1},
		"a rule of its own":      {"x_test.go", `if os.Getenv("CI") == "true" { t.Fatal() }`, 1},
		"started without asking": {"x_test.go", `exec.CommandContext(t.Context(), "node", "x.js")`, 1},
		"a program of ours":      {"x_test.go", `exec.CommandContext(t.Context(), "go", "list")`, 0},
		"in the product":         {"x.go", `exec.LookPath("postgres")`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Len(t, lookedForElsewhere(t, []pkg{plant(t, "worker", c.file, "package x\n\nfunc f() { "+c.body+" }\n")}), c.wrong)
		})
	}
}

// TestOneSetOfBuildFlags: `make demo`, `make dev`, the tests and the suites beside them compile with
// Go's defaults, so that each package is compiled once, also for the modules of users. Static
// programs and releases have flags of their own.
func TestOneSetOfBuildFlags(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	report(t, ownFlags(string(text)))
	for _, p := range load(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			require.NoError(t, err)
			if p.room() != "internal/architecture" && flagsOfItsOwn.Match(text) {
				t.Errorf("%s/%s sets CGO_ENABLED or -trimpath: what it compiles is compiled twice", p.room(), name)
			}
		}
	}
	require.Len(t, ownFlags("dev:\n\tCGO_ENABLED=0 go build\n\nbuild: x\n\tCGO_ENABLED=0 go build\n\tgo build -trimpath\n"), 2)
	require.Len(t, ownFlags("chaos lint: export CGO_ENABLED = 0\n"), 1)
}

var flagsOfItsOwn = regexp.MustCompile(`CGO_ENABLED|-trimpath`)

// ownFlags are the lines of a Makefile with such flags that are not of static programs.
func ownFlags(text string) (wrong []string) {
	static, target := []string{"build", "install", "release-dry-run"}, ""
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") {
			if name, _, rule := strings.Cut(line, ":"); rule {
				target = name
			}
		}
		if flagsOfItsOwn.MatchString(line) && (!slices.Contains(static, target) || strings.Contains(line, "-trimpath")) {
			wrong = append(wrong, "Makefile, "+target+": "+strings.TrimSpace(line))
		}
	}
	return wrong
}
