package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tasker-go/tasker/internal/pgtest"
)

// TestCtrlCEndsMakeDev in a terminal: the program alone gets it, so that make ends with the program's exit code. Ctrl-Z
// before it does nothing.
func TestCtrlCEndsMakeDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeMakefile(t, dir, recipeOfDev(t))
	const program = "#!/bin/bash\ntrap 'exit 0' INT\necho runs\nwhile :; do sleep 0.1; done\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "program"), []byte(program), 0o700)) // #nosec G306 -- a program
	keyboard, terminal := openTerminal(t)
	out := &screen{}
	cmd := exec.CommandContext(t.Context(), "make", "dev")
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = dir, terminal, terminal, terminal, outsideMake()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	read := make(chan struct{})
	go func() { // until the terminal is closed
		defer close(read)
		b := make([]byte, 1024)
		for {
			n, err := keyboard.Read(b)
			if _, _ = out.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	require.NoError(t, terminal.Close())
	pgtest.Eventually(t, time.Minute, func() (bool, string) { return out.String() == "runs\r\n", out.String() })
	_, err := keyboard.Write([]byte("\x1a\x03"))
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		require.NoError(t, err, out.String())
	case <-time.After(time.Minute):
		require.NoError(t, cmd.Process.Kill())
		<-ended
		require.Fail(t, "Ctrl-C has not ended make", out.String())
	}
	<-read
}

// openTerminal opens a pseudo-terminal: what a keyboard and a screen are to it, and the terminal itself.
func openTerminal(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = keyboard.Close() })
	fd := int(keyboard.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return keyboard, terminal
}
