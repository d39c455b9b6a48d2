//go:build !linux

package child

import "syscall"

// bind does nothing: these systems have no signal for the death of a parent.
func bind(*syscall.SysProcAttr, syscall.Signal) {}
