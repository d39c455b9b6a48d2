package volume

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tasker-go/tasker/internal/child"
)

// confinedEnv tells a program that it runs in a namespace of its own.
const confinedEnv = "TASKER_CHAOS_CONFINED"

// capSysAdmin is the right to mount, CAP_SYS_ADMIN.
const capSysAdmin = 21

// Confined runs the program once more in a mount namespace of its own and
// returns its exit code; run is called there. Where the kernel refuses that, run
// is called here. What it is called with is why no volume can be mounted, nil
// where it can.
func Confined(run func(unmountable error) int) int {
	if os.Getenv(confinedEnv) != "" {
		return run(probe())
	}
	p, err := again()
	if err != nil {
		return run(fmt.Errorf("make a namespace: %w", err))
	}
	return follow(p)
}

// probe tries to mount a volume.
func probe() error {
	v, err := Mount(os.TempDir(), 1<<20)
	if err != nil {
		return err
	}
	return v.Close()
}

// follow waits for the program's other self and hands on what it is told. A
// terminal tells both; hearing it twice does no harm.
func follow(p *child.Process) (code int) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)
	for {
		select {
		case s := <-signals:
			_ = p.Signal(s) // it may have ended
		case <-p.Done():
			if code = p.ExitCode(); code >= 0 {
				return code
			}
			fmt.Fprintln(os.Stderr, "chaos:", p.Err())
			return 2
		}
	}
}

// again starts this program with the same arguments in another namespace.
func again() (*child.Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, os.Args[1:]...) //nolint:noctx,gosec // it ends by itself, or with this one; its own arguments
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), confinedEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		// A user has no right to mount but in a user namespace. Under the same
		// number there, so that the server does not take itself for root's; the
		// right would be lost on the way without being handed on.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{capSysAdmin}
	}
	return child.Start(cmd, syscall.SIGTERM)
}
