package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/child"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// TestWhatEndsMakeEndsDev: the recipe of `make dev` runs a program which is ended in order, whatever ends make.
func TestWhatEndsMakeEndsDev(t *testing.T) {
	t.Parallel()
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // under nohup all that is started would ignore it
	t.Cleanup(func() { signal.Stop(heard) })
	recipe := recipeOfDev(t)
	for name, end := range map[string]func(pid int) error{
		"an interrupt of make alone":  func(pid int) error { return syscall.Kill(pid, syscall.SIGINT) },
		"SIGTERM":                     func(pid int) error { return syscall.Kill(pid, syscall.SIGTERM) },
		"SIGHUP":                      func(pid int) error { return syscall.Kill(pid, syscall.SIGHUP) },
		"kill -9 of make":             func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) },
		"an interrupt of its group":   func(pid int) error { return syscall.Kill(-pid, syscall.SIGINT) },
		"the terminal is closed":      func(pid int) error { return syscall.Kill(-pid, syscall.SIGHUP) },
		"the program ends by itself":  nil,
		"the program fails by itself": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// Bash may lose an interrupt while it waits for a command, but not in wait.
			code, program := "0", `trap 'echo interrupted >>said; kill $!; exit 0' INT; sleep 600 & echo "pid $$"; wait $!`
			if end == nil {
				if strings.Contains(name, "fails") {
					code = "3"
				}
				program = `echo "pid $$"; echo interrupted >>said; exit ` + code // it says the same
			}
			require.NoError(t, os.WriteFile(filepath.Join(dir, "program"), []byte("#!/bin/bash\n"+program+"\n"), 0o700))
			m := makeDev(t, dir, recipe)
			pid, err := strconv.Atoi(m.says(`pid (\d+)`))
			require.NoError(t, err)
			if end != nil {
				require.NoError(t, end(m.child.PID()))
			}
			select {
			case <-m.child.Done():
			case <-time.After(time.Minute):
				require.Fail(t, "make has not ended", m.output())
			}
			if end == nil {
				require.Equal(t, code == "0", m.child.ExitCode() == 0, m.output())
			}
			pgtest.Eventually(t, time.Minute, func() (bool, string) {
				return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), "the program runs, and make has ended: " + m.output()
			})
			said, err := os.ReadFile(filepath.Join(dir, "said"))
			require.NoError(t, err)
			require.Equal(t, "interrupted\n", string(said), "once, and in order")
		})
	}
}

// recipeOfDev is the line of the Makefile that runs the program of `make dev`.
func recipeOfDev(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	recipe := find(t, `(?m)^\t@(.* dev \$\(1\) \$\(DEMOFLAGS\))$`, string(text))
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	return strings.NewReplacer("scripts/", root+"/scripts/", "bin/tasker-ctl", "./program").Replace(recipe)
}

func writeMakefile(t *testing.T, dir, recipe string) {
	t.Helper()
	text := "SHELL := /bin/bash\n.PHONY: dev\ndev:\n\t@" + recipe + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte(text), 0o600))
}

// outsideMake is the environment without what make tells those that it starts: the make of a test
// is not a part of the one that runs the tests.
func outsideMake() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=")
	})
}

// makeDev starts make with the recipe in a folder that has the program.
func makeDev(t *testing.T, dir, recipe string) *shell {
	t.Helper()
	writeMakefile(t, dir, recipe)
	s := &shell{t: t, dir: dir, out: &screen{}}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "make", "dev") // ended below
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, s.out, s.out, outsideMake()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var err error
	s.child, err = child.Start(cmd, syscall.SIGKILL)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = syscall.Kill(-s.child.PID(), syscall.SIGTERM) // it may have ended
		<-s.child.Done()
	})
	return s
}
