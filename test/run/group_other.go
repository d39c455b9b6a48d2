//go:build !unix

package main

import (
	"os"
	"os/exec"
)

func group(*exec.Cmd) {}

func end(cmd *exec.Cmd, _ os.Signal) error { return cmd.Process.Kill() }
