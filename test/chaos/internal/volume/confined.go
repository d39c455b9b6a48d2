package volume

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tasker-go/tasker/internal/child"
)

// confinedEnv marks a program in its own namespace.
const confinedEnv = "TASKER_CHAOS_CONFINED"

// capSysAdmin is the right to mount, CAP_SYS_ADMIN.
const capSysAdmin = 21

// Confined runs the program again in its own mount namespace and returns its exit code;
// run is called there. If the kernel refuses that, run is called here. Its argument is
// why no volume can be mounted, nil if it can.
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

// follow waits for the program's second process and forwards signals. A terminal signals
// both; a duplicate does no harm.
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
		// A user may mount only in a user namespace. The same user id is used there, so
		// that the server does not run as root; the capability would be lost on exec
		// without being passed on.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{capSysAdmin}
	}
	return child.Start(cmd, syscall.SIGTERM)
}
