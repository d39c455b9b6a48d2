package child_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/tasker-go/tasker/internal/child"
)

// roleEnv makes the test binary play a role in a test.
const roleEnv = "TASKER_CHILD_TEST_ROLE"

// The roles.
const (
	rolePatient = "patient" // waits to be ended
	roleParent  = "parent"  // starts a patient child, names it and waits to be killed
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case rolePatient:
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(7)
	case roleParent:
		playParent()
	}
	goleak.VerifyTestMain(m)
}

func playParent() {
	cmd, _, err := patient()
	if err == nil {
		var p *child.Process
		if p, err = child.Start(cmd, syscall.SIGKILL); err == nil {
			fmt.Println(p.PID())
			_, _ = io.Copy(io.Discard, os.Stdin) // until killed, or the test is
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// patient is a process that ends with code 7 when the returned closer is closed.
func patient() (*exec.Cmd, io.Closer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+rolePatient)
	in, err := cmd.StdinPipe()
	return cmd, in, err
}
