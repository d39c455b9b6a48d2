package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/needs"
	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// TestReadmesWorkerJoinsDev follows README: the program in its own module, joined to
// `tasker-ctl dev` with the line that dev prints, and the request, whose task ends with
// the greeting in capitals. The worker goes on when dev is stopped, or killed, and started
// again.
func TestReadmesWorkerJoinsDev(t *testing.T) {
	t.Parallel()
	needs.Tool(t, needs.Curl)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	dir := t.TempDir()
	goBuild(t, "../..", "-o", dir+"/", "./cmd/tasker-ctl")
	programs := programsOf(string(readme))
	require.Len(t, programs, 1)
	buildElsewhere(t, filepath.Join(dir, "greeter"), programs[0])

	line := "exec ./tasker-ctl dev --data-dir '" + keptData(t) + "' --orchestrator-address 127.0.0.1:0 --worker-address 127.0.0.1:0"
	start := func() (dev *shell, join, base string) {
		dev = run(t, dir, line)
		join, base = dev.says(`(?m)^  (export DATABASE_URL='[^']+')$`), dev.says(`(?m)^orchestrator +(http://\S+)$`)
		dev.says(`(?m)^Ctrl-C ends it`)
		return dev, join, base
	}
	dev, join, base := start()
	greeter := run(t, dir, join+" TASKER_WEB_BIND_ADDRESS=127.0.0.1:0; exec ./greeter")
	greet := func(whom string) {
		body := strings.NewReplacer("http://localhost:8080", base, `"world"`, `"`+whom+`"`).Replace(command(t, string(readme), "curl "))
		var answer string
		pgtest.Eventually(t, time.Minute, func() (bool, string) { // until the worker has registered its template
			answer = greeter.shell("curl -sS" + strings.TrimPrefix(body, "curl"))
			return strings.Contains(answer, `"task_uuid"`), answer
		})
		require.Regexp(t, `"status": ?"complete"`, answer)
		id := find(t, `"task_uuid": ?"([0-9a-f-]+)"`, answer)
		require.Contains(t, greeter.shell("./tasker-ctl --orchestration-url "+base+" task get "+id), "HELLO "+strings.ToUpper(whom))
	}
	greet("world")

	second := run(t, dir, line)
	second.says("used by another process of Tasker .pid " + strconv.Itoa(dev.child.PID()))
	for whom, signal := range map[string]os.Signal{"stopped": os.Interrupt, "killed": os.Kill} {
		require.NoError(t, dev.child.Signal(signal))
		<-dev.child.Done()
		require.Equal(t, signal == os.Interrupt, dev.child.ExitCode() == 0, dev.output())
		var again string
		dev, again, base = start()
		require.Equal(t, join, again)
		greet(whom)
		require.False(t, greeter.ended(), greeter.output())
	}
	require.NoError(t, dev.child.Signal(os.Interrupt)) // Ctrl-C
	<-dev.child.Done()
	require.Zero(t, dev.child.ExitCode(), dev.output())
}

// keptData is a folder for the database of a dev of this test, which the server's user can enter.
func keptData(t *testing.T) string {
	t.Helper()
	base, err := pgcluster.TempDir()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(base, "tasker-e2e-dev-") //nolint:usetesting // t.TempDir is closed to the server's user
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711)) // #nosec G302 -- the data itself is closed
	return filepath.Join(dir, "data")
}

// TestEmbeddedProgram runs the program of docs/use/embedding.md, which embeds the engine, on
// an empty database that only its own pool can reach.
func TestEmbeddedProgram(t *testing.T) {
	page, err := os.ReadFile("../../docs/use/embedding.md")
	require.NoError(t, err)
	dir := t.TempDir()
	programs := programsOf(string(page))
	require.Len(t, programs, 1)
	buildElsewhere(t, filepath.Join(dir, "embedded"), programs[0])
	line := "env -u DATABASE_URL SHOP_DATABASE='" + pgtest.New(t).DSN + "' ./embedded"
	out := (&shell{t: t, dir: dir}).shell(line)
	require.Regexp(t, "^complete: .*HELLO WORLD", out)
	require.Contains(t, (&shell{t: t, dir: dir}).shell(line), "exit status 1", "the same context is the same task")
}

// programsOf lists the whole Go programs of a page.
func programsOf(page string) (programs []string) {
	for _, m := range regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllStringSubmatch(page, -1) {
		programs = append(programs, m[1])
	}
	return programs
}

// buildElsewhere compiles a program in its own module, with these sources instead of a
// released version.
func buildElsewhere(t *testing.T, to, program string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	module := t.TempDir()
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"main.go": program,
		"go.sum":  string(sums),
		"go.mod": "module example\n\ngo 1.26.0\n\nrequire github.com/tasker-go/tasker v0.0.0\n\n" +
			"replace github.com/tasker-go/tasker => " + root + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(module, name), []byte(text), 0o600))
	}
	goBuild(t, module, "-mod=mod", "-o", to, ".")
}

func goBuild(t *testing.T, in string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...) // #nosec G204 -- the arguments are built here
	cmd.Dir = in
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// command returns a command of a page's shell blocks, with its continuation lines.
func command(t *testing.T, page, start string) string {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
		if _, after, found := strings.Cut("\n"+block[1], "\n"+start); found {
			return start + after
		}
	}
	t.Fatalf("no block begins a line with %q", start)
	return ""
}

func find(t *testing.T, pattern, text string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, m, "%s is not in %s", pattern, text)
	return m[1]
}

// shell is a process that was started as in a terminal.
type shell struct {
	t     *testing.T
	dir   string
	child *child.Process
	out   *screen
}

// run starts a line of bash, without the variables that would configure a daemon.
func run(t *testing.T, dir, line string) *shell {
	t.Helper()
	s := &shell{t: t, dir: dir, out: &screen{}}
	cmd := s.command(context.WithoutCancel(t.Context()), line) // ended below
	cmd.Stdout, cmd.Stderr = s.out, s.out
	var err error
	s.child, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = s.child.Signal(syscall.SIGTERM) // it may have ended
		<-s.child.Done()
		if t.Failed() {
			t.Logf("%s:\n%s", line, s.output())
		}
	})
	return s
}

func (s *shell) command(ctx context.Context, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", line) // #nosec G204 -- the lines are README's
	cmd.Dir = s.dir
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if name != "DATABASE_URL" && !strings.HasPrefix(name, "PG") && (!strings.HasPrefix(name, "TASKER_") || name == "TASKER_PG_BIN") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	return cmd
}

// shell runs another line to its end and returns what it wrote.
func (s *shell) shell(line string) string {
	out, err := s.command(s.t.Context(), line).CombinedOutput()
	if err != nil {
		return err.Error() + ": " + string(out)
	}
	return string(out)
}

// says waits for a line, while the process lives, and returns what its group matches.
func (s *shell) says(pattern string) (found string) {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	pgtest.Eventually(s.t, 2*time.Minute, func() (bool, string) {
		ended := s.ended()
		m := re.FindStringSubmatch(s.output())
		if m == nil {
			require.False(s.t, ended, "it ended and has not said: %s\n%s", pattern, s.output())
			return false, "not said: " + pattern + "\n" + s.output()
		}
		found = m[len(m)-1]
		return true, ""
	})
	return found
}

// ended reports whether the process has ended, and all of its output is there.
func (s *shell) ended() bool {
	select {
	case <-s.child.Done():
		return true
	default:
		return false
	}
}

func (s *shell) output() string { return s.out.String() }

// screen records the output of a process.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}
