package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tasker-go/tasker/internal/needs"
)

const (
	// silence is how long nothing is printed before a line says what is under way.
	silence = 20 * time.Second
	// ending is how long gotestsum may take after an interrupt before it is killed.
	ending = 10 * time.Second
)

func main() {
	code, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// arguments are `-gotestsum PROGRAM [FLAG…] -- PACKAGE…`.
type arguments struct {
	gotestsum       string
	flags, packages []string
}

func parse(args []string) (a arguments, err error) {
	dashes := slices.Index(args, "--")
	if len(args) < 2 || args[0] != "-gotestsum" || dashes < 2 || dashes == len(args)-1 {
		return a, fmt.Errorf("invalid arguments %q: want -gotestsum PROGRAM [FLAG…] -- PACKAGE…", strings.Join(args, " "))
	}
	return arguments{args[1], args[2:dashes], args[dashes+1:]}, nil
}

// run returns the exit code of the tests.
func run(args []string, out io.Writer) (code int, err error) {
	a, err := parse(args)
	if err != nil {
		return 2, err
	}
	ctx := context.Background()
	total, err := tested(ctx, a.packages)
	if err != nil {
		return 1, err
	}
	file := os.Getenv("GOTESTSUM_JSONFILE")
	if file == "" {
		dir, err := os.MkdirTemp("", "tasker-tests-")
		if err != nil {
			return 1, fmt.Errorf("make the folder of the events: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
		file = filepath.Join(dir, "events.json")
	} else if err := os.WriteFile(file, nil, 0o600); err != nil { // what an earlier run has left
		return 1, fmt.Errorf("empty the file of the events: %w", err)
	}
	found := needs.Found(ctx)
	fmt.Fprintf(out, "Tools of tests that are here: %s.\n", cmp.Or(found, "none"))
	fmt.Fprintf(out, "Packages to test: %d; a line for each when it ends.\n", total)
	cmd := exec.CommandContext(ctx, a.gotestsum, slices.Concat([]string{"--format", "pkgname-and-test-fails", "--format-icons", "text", // #nosec G204 G702 -- of scripts/test
		"--format-hide-empty-pkg", "--hide-summary", "skipped", "--jsonfile", file, "--"}, a.flags, a.packages)...)
	cmd.Env = append(os.Environ(), needs.EnvTools+"="+found)
	if terminal(out) {
		cmd.Args = slices.Insert(cmd.Args, 1, "--no-color=false") // it writes to a pipe
	}
	return follow(cmd, out, &course{file: file, total: total, begun: time.Now()}, ending)
}

// tested counts the packages that have tests.
func tested(ctx context.Context, packages []string) (int, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"list", "-f", format}, packages)...) // #nosec G204 -- of the command line
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("list the packages: %w", err)
	}
	names := strings.Fields(string(list))
	slices.Sort(names)
	return len(slices.Compact(names)), nil
}

func terminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// follow passes on what gotestsum prints, and keeps its closing line for the end. After an interrupt
// it returns when all that gotestsum has started has closed its output, by force after ending.
func follow(cmd *exec.Cmd, out io.Writer, c *course, ending time.Duration) (code int, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	group(cmd)
	lines, err := start(cmd)
	if err != nil {
		return 1, err
	}
	var closing string
	var interrupted os.Signal
	kill := time.NewTimer(time.Hour)
	kill.Stop()
	tick, said := time.NewTicker(time.Second), time.Now()
	defer tick.Stop()
	for open := true; open; {
		var line string
		select {
		case line, open = <-lines:
			switch {
			case !open:
			case strings.HasPrefix(line, "DONE "):
				closing = line
			default:
				fmt.Fprint(out, line)
				said = time.Now()
			}
		case <-tick.C:
			if err := c.read(); err != nil {
				return 1, errors.Join(err, end(cmd, syscall.SIGKILL), cmd.Wait())
			}
			if time.Since(said) >= silence {
				fmt.Fprintln(out, c.String())
				said = time.Now()
			}
		case interrupted = <-signals:
			_ = end(cmd, interrupted) // it may have ended
			kill.Reset(ending)
		case <-kill.C:
			_ = end(cmd, syscall.SIGKILL) // it may have ended
		}
	}
	err = cmd.Wait()
	if interrupted != nil {
		_ = end(cmd, syscall.SIGKILL) // what is left of the group
		return 130, errors.New("interrupted")
	}
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return 1, fmt.Errorf("run the tests: %w", err)
	}
	if err := c.read(); err != nil {
		return 1, err
	}
	for _, line := range c.leftOut() {
		fmt.Fprintln(out, line)
	}
	fmt.Fprint(out, closing)
	if closing == "" {
		return max(cmd.ProcessState.ExitCode(), 1), errors.New("the run has no closing line")
	}
	return cmd.ProcessState.ExitCode(), nil
}

// start returns the lines of both outputs, which end with the program.
func start(cmd *exec.Cmd) (<-chan string, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := errors.Join(cmd.Start(), write.Close()); err != nil {
		return nil, fmt.Errorf("start gotestsum: %w", err)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for r := bufio.NewReader(read); ; {
			line, err := r.ReadBytes('\n')
			if len(bytes.TrimSpace(line)) > 0 || err == nil {
				lines <- string(line)
			}
			if err != nil {
				return
			}
		}
	}()
	return lines, nil
}
