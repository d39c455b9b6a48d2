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
