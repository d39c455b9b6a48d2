package architecture_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// event is a line of go test -json.
func event(action, pkg, test, output string) string {
	of := ""
	if test != "" {
		of = fmt.Sprintf(`,"Test":%q`, test)
	}
	if action == "output" {
		return fmt.Sprintf(`{"Time":"2026-01-02T03:04:05.6Z","Action":"output","Package":%q%s,"Output":%q}`, pkg, of, output) + "\n"
	}
	if action == "start" {
		return fmt.Sprintf(`{"Time":"2026-01-02T03:04:05.6Z","Action":"start","Package":%q}`, pkg) + "\n"
	}
	return fmt.Sprintf(`{"Time":"2026-01-02T03:04:05.6Z","Action":%q,"Package":%q%s,"Elapsed":0.1}`, action, pkg, of) + "\n"
}

// TestAFailedTestIsAskedAgain tests scripts/ask-again, by which CI distinguishes flaky
// tests from defects, with events of go test.
func TestAFailedTestIsAskedAgain(t *testing.T) {
	t.Parallel()
	passed := event("start", "example/a", "", "") + event("pass", "example/a", "TestFine", "") + event("pass", "example/a", "", "")
	one := event("start", "example/b", "", "") + event("output", "example/b", "TestOne/below", `one_test.go:1: "why": "Action":"fail"`) +
		event("fail", "example/b", "TestOne/below", "") + event("fail", "example/b", "TestOne", "") + event("output", "example/b", "", "FAIL\n") +
		event("fail", "example/b", "", "")
	two := event("start", "example/c", "", "") + event("fail", "example/c", "TestTwo", "") + event("fail", "example/c", "TestThree", "") + event("fail", "example/c", "", "")
	none := event("start", "example/none", "", "") + event("skip", "example/none", "", "")
	for name, c := range map[string]struct {
		printed string
		again   string // the behaviour of go test in the second run
		passes  bool
		says    string
	}{
		"chance":             {passed + one + none, "exit 0", true, "example/b\tTestOne\n"},
		"in two packages":    {one + passed + two, "exit 0", true, "example/c\tTestTwo|TestThree"},
		"a defect":           {passed + one, "exit 1", false, "Again, 3 times: TestOne of example/b"},
		"the second's":       {one + two, `[[ $* != *example/c ]]`, false, "TestTwo|TestThree of example/c"},
		"too many":           {one + two + strings.ReplaceAll(two, "example/c", "example/d"), "exit 0", false, "5 tests failed, more than 3"},
		"a race":             {event("output", "example/b", "TestOne", "WARNING: DATA RACE\n") + one, "exit 0", false, "no chance"},
		"a panic":            {event("output", "example/b", "TestOne", "panic: nil\n") + one, "exit 0", false, "no chance"},
		"a time-out":         {one + event("output", "example/b", "", "*** test timed out after 1s\n"), "exit 0", false, "no chance"},
		"does not compile":   {passed + event("start", "example/d", "", "") + event("fail", "example/d", "", ""), "exit 0", false, "without naming a test"},
		"no test failed":     {passed, "exit 0", false, "no package has said"},
		"nothing was tested": {"", "exit 0", false, "no package has said"},
		"ended from outside": {one + event("start", "example/e", "", "") + event("fail", "example/e", "TestOne", ""), "exit 0", false, "ended before example/e"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			events, stub := filepath.Join(dir, "events"), filepath.Join(dir, "go")
			require.NoError(t, os.WriteFile(events, []byte(c.printed), 0o600))
			require.NoError(t, os.WriteFile(stub, []byte("#!/usr/bin/env bash\n"+c.again+"\n"), 0o700)) // #nosec G306 -- a program
			cmd := exec.CommandContext(t.Context(), "../../scripts/ask-again", events)
			cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.Equal(t, c.passes, err == nil, string(out))
			require.Contains(t, string(out), c.says)
		})
	}
}
