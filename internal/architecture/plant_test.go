package architecture_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// plant writes a package with one file for a rule that reads sources, and returns it as
// `go list` would.
func plant(t *testing.T, room, file, src string) pkg {
	t.Helper()
	p := pkg{ImportPath: module + "/" + room, Name: filepath.Base(room), Dir: t.TempDir()}
	require.NoError(t, os.WriteFile(filepath.Join(p.Dir, file), []byte(src), 0o600))
	if filepath.Ext(file) == ".go" && len(file) > len("_test.go") && file[len(file)-len("_test.go"):] == "_test.go" {
		p.TestGoFiles = []string{file}
	} else {
		p.GoFiles = []string{file}
	}
	return p
}

func TestPlantedSQLIsFound(t *testing.T) {
	t.Parallel()
	const src = "package x\n\nconst q = `\n  -- the oldest first\n  select uuid from tasker.tasks where state = $1`\n"
	for name, tt := range map[string]struct {
		room, file string
		wrong      int
	}{
		"beside the rules":    {"internal/orchestration", "x.go", 1},
		"in the API":          {"internal/api/rest", "x.go", 1},
		"in the client":       {"client/pgclient", "x.go", 1},
		"in signal itself":    {"signal", "x.go", 1},
		"in an internal room": {"internal/child", "x.go", 1},
		"in a test":           {"internal/orchestration", "x_test.go", 0},
		"in store":            {"internal/store", "x.go", 0},
		"below store":         {"internal/store/internal/board", "x.go", 0},
		"where it may":        {"internal/signal/wal", "x.go", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allowed := map[string]string{}
			if tt.room == "internal/signal/wal" {
				allowed = map[string]string{tt.room: "because"}
			}
			require.Len(t, straySQL(t, []pkg{plant(t, tt.room, tt.file, src)}, allowed), tt.wrong)
		})
	}
	t.Run("an allowance that is used no more", func(t *testing.T) {
		t.Parallel()
		require.Len(t, straySQL(t, []pkg{plant(t, "internal/signal/wal", "x.go", "package x\n")}, map[string]string{"internal/signal/wal": "because"}), 1)
	})
}

func TestPlantedSleepsAreFound(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body  string
		wrong int
	}{
		"sleep":                       {"time.Sleep(1)", 1},
		"after":                       {"<-time.After(1)", 1},
		"after, assigned":             {"c := time.After(1); <-c", 1},
		"timer":                       {"<-time.NewTimer(1).C", 1},
		"ticker":                      {"for range time.NewTicker(1).C { }", 1},
		"tick":                        {"<-time.Tick(1)", 1},
		"called later":                {"time.AfterFunc(1, func() {})", 1},
		"never":                       {"require.Never(t, nil, 1, 1)", 1},
		"never, of assert":            {"assert.Neverf(t, nil, 1, 1, ``)", 1},
		"consistently":                {"g.Consistently(nil)", 1},
		"select that goes on":         {"select { case <-c: case <-time.After(1): }", 1},
		"select with time alone":      {"select { case <-time.After(1): t.Fatal() }", 1},
		"a deadline":                  {"select { case <-c: case <-time.After(1): t.Fatal() }", 0},
		"a deadline, told by require": {"select { case <-c: case <-time.After(1): require.Fail(t, ``) }", 0},
		"eventually the time is over": {"pgtest.Eventually(t, 1, func() (bool, string) { return time.Since(began) > 1, `` })", 1},
		"eventually it is so late":    {"require.Eventually(t, func() bool { return time.Now().After(end) }, 1, 1)", 1},
		"eventually a state":          {"require.Eventually(t, func() bool { return done.Load() }, 1, 1)", 0},
		"in SQL":                      {"db.Exec(t, `select pg_" + "sleep(1)`)", 1},
		"another program":             {"exec.Command(`sleep`, `1`)", 1},
		"with a reason":               {"<-time.After(1) // takes time: the fault falls at a random moment", 0},
		"with a reason above":         {"// takes time: the fault falls at a random moment\n\t<-time.After(1)", 0},
		"without one":                 {"<-time.After(1) // takes time:", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plant(t, "worker", "x_test.go", "package x\n\nfunc Test(t *testing.T) {\n\t"+tt.body+"\n}\n")
			require.Len(t, sleeps(t, []pkg{p}), tt.wrong)
		})
	}
	t.Run("in a bubble", func(t *testing.T) {
		t.Parallel()
		p := plant(t, "worker", "x_test.go", "package x\n\nimport \"testing/synctest\"\n\nfunc Test(t *testing.T) { time.Sleep(1) }\n")
		require.Empty(t, sleeps(t, []pkg{p}))
	})
	t.Run("in a test kit", func(t *testing.T) {
		t.Parallel()
		p := plant(t, "internal/pgtest", "x.go", "package x\n\nfunc wait() { time.Sleep(1) }\n")
		p.Imports = []string{"testing"}
		require.Len(t, sleeps(t, []pkg{p}), 1)
	})
}
