package architecture_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAFailedTestIsAskedAgain tests scripts/ask-again, by which CI distinguishes flaky
// tests from defects, with output of go test.
func TestAFailedTestIsAskedAgain(t *testing.T) {
	t.Parallel()
	const (
		passed = "ok  \texample/a\t1.0s\n"
		one    = "=== RUN\n--- FAIL: TestOne (0.1s)\n    --- FAIL: TestOne/below (0.1s)\n        one_test.go:1: why\nFAIL\nFAIL\texample/b\t2.0s\n"
		two    = "--- FAIL: TestTwo (0.1s)\n--- FAIL: TestThree (0.1s)\nFAIL\nFAIL\texample/c\t2.0s\n"
	)
	for name, c := range map[string]struct {
		printed string
		again   string // the behaviour of go test in the second run
		passes  bool
		says    string
	}{
		"chance":             {passed + one + passed, "exit 0", true, "example/b\tTestOne"},
		"in two packages":    {one + passed + two, "exit 0", true, "example/c\tTestTwo|TestThree"},
		"a defect":           {passed + one, "exit 1", false, "Again, 3 times: TestOne of example/b"},
		"the second's":       {one + two, `[[ $* != *example/c ]]`, false, "TestTwo|TestThree of example/c"},
		"too many":           {one + two + two, "exit 0", false, "5 tests failed, more than 3"},
		"a race":             {"WARNING: DATA RACE\n" + one, "exit 0", false, "no chance"},
		"a panic":            {"panic: nil\n" + one, "exit 0", false, "no chance"},
		"a time-out":         {one + "*** test timed out after 1s\n", "exit 0", false, "no chance"},
		"does not compile":   {passed + "FAIL\texample/d [build failed]\n", "exit 0", false, "without naming a test"},
		"no test failed":     {passed, "exit 0", false, "no package has said"},
		"ended from outside": {passed + "--- FAIL: TestOne (0.1s)\n", "exit 0", false, "no package has said"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			log, stub := filepath.Join(dir, "log"), filepath.Join(dir, "go")
			require.NoError(t, os.WriteFile(log, []byte(c.printed), 0o600))
			require.NoError(t, os.WriteFile(stub, []byte("#!/usr/bin/env bash\n"+c.again+"\n"), 0o700)) // #nosec G306 -- a program
			cmd := exec.CommandContext(t.Context(), "../../scripts/ask-again", log)
			cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.Equal(t, c.passes, err == nil, string(out))
			require.Contains(t, string(out), c.says)
		})
	}
}
