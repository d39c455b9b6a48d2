//go:build !unix

package main

import "os"

// windowSize never finds a terminal here, so output stays plain.
func windowSize(*os.File) (columns, rows int, ok bool) { return 0, 0, false }

// keysAtOnce does nothing here: keys come with the end of their line.
func keysAtOnce(*os.File) (restore func()) { return func() {} }
