//go:build !unix

package pgcluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// This file lets programs that can also run a cluster be built on unsupported systems: Start
// always fails there.

type account struct{}

func serverAccount() (*account, error)                { return nil, errUnsupported }
func (a *account) own(string) error                   { return errUnsupported }
func (a *account) ownerOf(string) error               { return errUnsupported }
func (a *account) canReach(string) error              { return errUnsupported }
func (a *account) tempDir() (string, error)           { return "", errUnsupported }
func ownedByUs(os.FileInfo) bool                      { return false }
func tryLock(string) (*os.File, error)                { return nil, errUnsupported }
func processAlive(int) bool                           { return false }
func servesDirectory(int, string) bool                { return false }
func cleanEnv() []string                              { return os.Environ() }
func sysProcAttr(*account, bool) *syscall.SysProcAttr { return nil }

var errLocked = errors.New("locked by another process")

// UnreachableError is never returned on this system.
type UnreachableError struct{ Path, Closed, User string }

// Error implements error.
func (e *UnreachableError) Error() string { return e.Path + " cannot be reached" }

// TempDir always fails on this system.
func TempDir() (string, error) { return "", errUnsupported }

// SuggestDataDir returns the wish, made absolute.
func SuggestDataDir(wish string) (dir, reason string, err error) {
	dir, err = filepath.Abs(wish)
	return dir, "", err
}

type command struct {
	path   string
	args   []string
	dir    string
	runAs  *account
	output *os.File

	orphaned syscall.Signal
}

type process struct {
	pid  int
	done <-chan struct{}
}

func startChild(command) (*process, error)                     { return nil, errUnsupported }
func startDetached(context.Context, command) (*process, error) { return nil, errUnsupported }
func (p *process) alive() bool                                 { return false }
func (p *process) signal(syscall.Signal) error                 { return errUnsupported }
func (p *process) wait(context.Context) error                  { return errUnsupported }
func (p *process) end(syscall.Signal)                          {}
