//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// group gives a program a process group of its own, to which end sends a signal: the programs of
// the tests do not hear of an end of gotestsum alone.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func end(cmd *exec.Cmd, s os.Signal) error {
	number, ok := s.(syscall.Signal)
	if !ok {
		return errors.New("invalid signal " + s.String())
	}
	if err := syscall.Kill(-cmd.Process.Pid, number); err != nil {
		return fmt.Errorf("signal gotestsum: %w", err)
	}
	return nil
}
