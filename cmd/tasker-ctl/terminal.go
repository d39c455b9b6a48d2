package main

import (
	"io"
	"os"

	"github.com/tasker-go/tasker/internal/wording"
)

// terminal says what an output can do.
type terminal struct {
	// live: the cursor can be moved, so a picture can be drawn again in place.
	live bool
	// colour: escape sequences for colours are understood and wanted.
	colour bool
	// size returns columns and rows, 0 when unknown; nil when not live.
	size func() (columns, rows int)
}

// detectTerminal looks whether w is a terminal. NO_COLOR (any value but the
// empty one) and TERM=dumb are honoured.
func detectTerminal(w io.Writer, env lookupFunc) terminal {
	file, ok := wording.Beneath(w).(*os.File)
	if !ok {
		return terminal{}
	}
	columns, rows, ok := windowSize(file)
	kind, _ := env("TERM")
	if !ok || kind == "" || kind == "dumb" {
		return terminal{}
	}
	noColour, _ := env("NO_COLOR")
	return terminal{
		live:   true,
		colour: noColour == "",
		size: func() (int, int) {
			if c, r, ok := windowSize(file); ok {
				columns, rows = c, r // the window may change while it is watched
			}
			return columns, rows
		},
	}
}

// style is an SGR sequence of a colour; the empty style is plain.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// paint wraps text in a style where colours are wanted.
func (t terminal) paint(s style, text string) string {
	if !t.colour || s == plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}
