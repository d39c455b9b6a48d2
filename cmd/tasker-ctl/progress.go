package main

import (
	"fmt"
	"io"
	"strings"
)

// progress is a line on stderr that tells how far a command with many calls is. It
// is there while stderr is a terminal; results and scripts see nothing of it.
type progress struct {
	app   *app
	noun  string // of what is counted
	total int64  // 0: not known
}

// progressWidth is how long the bar is.
const progressWidth = 24

// at draws how far it is, and how many things are done.
func (p *progress) at(done int64, things int) {
	if !p.app.errors.live {
		return
	}
	bar := ""
	if p.total > 0 {
		share := float64(min(done, p.total)) / float64(p.total)
		full := int(share * progressWidth)
		bar = fmt.Sprintf("[%s%s] %3.0f%%  ", strings.Repeat("#", full), strings.Repeat("-", progressWidth-full), 100*share)
	}
	fmt.Fprintf(p.app.stderr, "\r%s%s%s", bar, counted(things, p.noun), clearLine)
}

// end takes the line away.
func (p *progress) end() {
	if p.app.errors.live {
		fmt.Fprint(p.app.stderr, "\r"+clearLine)
	}
}

// countingReader tells how much has been read.
type countingReader struct {
	io.Reader
	n int64
}

// Read implements io.Reader.
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += int64(n)
	return n, err
}
