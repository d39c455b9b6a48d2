package child_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/child"
)

const soon = 20 * time.Second

func ended(t *testing.T, p *child.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(soon):
		require.Fail(t, "the process has not ended")
	}
}

// TestAChildOutlivesTheThreadOfItsStarter: the calling goroutine is locked to a thread,
// which ends with it.
func TestAChildOutlivesTheThreadOfItsStarter(t *testing.T) {
	t.Parallel()
	cmd, in, err := patient()
	require.NoError(t, err)
	var p *child.Process
	onThreadThatEnds(t, func() { p, err = child.Start(cmd, syscall.SIGKILL) })
	require.NoError(t, err)
	require.NoError(t, in.Close())
	ended(t, p)
	require.Equal(t, 7, p.ExitCode(), "it ended in its own time")
	require.Error(t, p.Err())
	require.ErrorIs(t, p.Signal(syscall.SIGKILL), os.ErrProcessDone)
}

// onThreadThatEnds runs f on a thread of its own and returns once that has ended.
func onThreadThatEnds(t *testing.T, f func()) {
	t.Helper()
	id := make(chan int)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() { // the first thread never ends
			id <- 0
			return
		}
		f()
		id <- syscall.Gettid()
	}()
	thread := <-id
	if thread == 0 {
		onThreadThatEnds(t, f) // the first thread is taken for good now
		return
	}
	require.Eventually(t, func() bool {
		_, err := os.Stat("/proc/self/task/" + strconv.Itoa(thread))
		return err != nil
	}, soon, time.Millisecond)
}

func TestAChildEndsWithItsParent(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self)
	parent.Env = append(os.Environ(), roleEnv+"="+roleParent)
	in, err := parent.StdinPipe()
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err, line)
	require.NoError(t, syscall.Kill(pid, 0))
	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait() // killed
	require.Eventually(t, func() bool { return gone(pid) }, soon, 5*time.Millisecond)
}

// gone reports whether a process has ended; one that was not waited for is a zombie.
func gone(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(raw), ") Z ")
}

func TestAProgramThatIsNotThere(t *testing.T) {
	t.Parallel()
	_, err := child.Start(exec.Command("/nowhere/at/all"), syscall.SIGKILL)
	require.ErrorIs(t, err, os.ErrNotExist)
}
