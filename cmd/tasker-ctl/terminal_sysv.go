//go:build unix && !(darwin || dragonfly || freebsd || netbsd || openbsd)

package main

import "golang.org/x/sys/unix"

// The requests that read and set the ways of a terminal.
const getTermios, setTermios = unix.TCGETS, unix.TCSETS
