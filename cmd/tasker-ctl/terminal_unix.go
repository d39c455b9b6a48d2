//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// windowSize asks the terminal behind a file for its size; ok is false when
// there is none.
func windowSize(file *os.File) (columns, rows int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(size.Col), int(size.Row), true
}

// keysAtOnce makes the terminal behind a file give keys as they are pressed, unseen;
// restore undoes that. Ctrl-C stays a signal. What is no terminal stays as it is.
func keysAtOnce(file *os.File) (restore func()) {
	fd := int(file.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {}
	}
	now := *before
	now.Lflag &^= unix.ICANON | unix.ECHO
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, setTermios, &now); err != nil {
		return func() {}
	}
	return func() { _ = unix.IoctlSetTermios(fd, setTermios, before) } // nothing can be done about a failure
}
