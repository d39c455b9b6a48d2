package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tasker-go/tasker/internal/needs"
)

// shown bounds the packages, and the tests of one, that a line about what is under way names.
const shown = 3

// event is what is read of an event of go test -json.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

// course is how far a run is, read from the file of its events.
type course struct {
	file  string
	total int // packages that have tests
	begun time.Time

	offset  int64
	partial []byte                          // a line that is not whole yet
	running map[string]map[string]time.Time // by package: its tests and when they began; "" is the package
	ended   int                             // packages
	printed map[string]string               // by test: why it is left out
	missing map[string]int                  // by tool: tests that are left out
	repeats int
}

// read takes in what was written since the last time.
func (c *course) read() error {
	file, err := os.Open(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // gotestsum has not begun
	}
	if err != nil {
		return fmt.Errorf("open the events: %w", err)
	}
	defer func() { _ = file.Close() }() // only read
	more, err := io.ReadAll(io.NewSectionReader(file, c.offset, 1<<40))
	if err != nil {
		return fmt.Errorf("read the events: %w", err)
	}
	c.offset += int64(len(more))
	whole, rest, found := cutLast(append(c.partial, more...))
	c.partial = rest
	if !found {
		return nil
	}
	for line := range bytes.Lines(whole) {
		var e event
		if json.Unmarshal(line, &e) == nil { // others are gotestsum's affair
			c.take(e)
		}
	}
	return nil
}

// cutLast cuts behind the last line.
func cutLast(text []byte) (whole, rest []byte, found bool) {
	at := bytes.LastIndexByte(text, '\n')
	return text[:at+1], bytes.Clone(text[at+1:]), at >= 0
}

func (c *course) take(e event) {
	if c.running == nil {
		c.running, c.printed, c.missing = map[string]map[string]time.Time{}, map[string]string{}, map[string]int{}
	}
	test := e.Package + " " + e.Test
	switch e.Action {
	case "start", "run", "cont":
		if c.running[e.Package] == nil {
			c.running[e.Package] = map[string]time.Time{}
		}
		c.running[e.Package][e.Test] = e.Time
	case "pause":
		delete(c.running[e.Package], e.Test)
	case "output":
		if strings.HasPrefix(strings.TrimLeft(e.Output, " "), "--- ") {
			delete(c.running[e.Package], e.Test) // its own event may come much later
		}
		if missing, repeats := needs.Reason(e.Output); len(missing) > 0 || repeats {
			c.printed[test] = e.Output
		}
	case "skip", "pass", "fail":
		if e.Test == "" {
			if e.Action != "skip" { // one without tests
				c.ended++
			}
			delete(c.running, e.Package)
			return
		}
		delete(c.running[e.Package], e.Test)
		if e.Action == "skip" {
			c.count(c.printed[test])
		}
		delete(c.printed, test)
	}
}

func (c *course) count(printed string) {
	missing, repeats := needs.Reason(printed)
	for _, tool := range missing {
		c.missing[tool]++
	}
	if repeats {
		c.repeats++
	}
}

// String is the line about what is under way, the oldest first.
func (c *course) String() string {
	now := time.Now()
	began := map[string]time.Time{}
	for name, tests := range c.running {
		began[name] = tests[""]
	}
	var parts []string
	for _, name := range oldest(began) {
		tests := maps.Clone(c.running[name])
		delete(tests, "")
		maps.DeleteFunc(tests, func(test string, _ time.Time) bool { return hasChild(tests, test) })
		var named []string
		for _, test := range oldest(tests) {
			named = append(named, fmt.Sprintf("%s %s", test, now.Sub(tests[test]).Round(time.Second)))
		}
		part := strings.TrimPrefix(name, "github.com/tasker-go/tasker/")
		if len(named) > 0 {
			part += " (" + few(named) + ")"
		}
		parts = append(parts, part)
	}
	text := fmt.Sprintf("  %s: %d of %d packages have ended", now.Sub(c.begun).Round(time.Second), c.ended, c.total)
	if len(parts) == 0 {
		return text + "; the next are being compiled"
	}
	return text + "; under way: " + few(parts)
}

// hasChild reports whether a part of a test runs: that is named instead.
func hasChild(tests map[string]time.Time, test string) bool {
	for other := range tests {
		if strings.HasPrefix(other, test+"/") {
			return true
		}
	}
	return false
}

func oldest(began map[string]time.Time) []string {
	return slices.SortedFunc(maps.Keys(began), func(a, b string) int {
		return cmp.Or(began[a].Compare(began[b]), strings.Compare(a, b))
	})
}

func few(names []string) string {
	if more := len(names) - shown; more > 0 {
		names = append(names[:shown:shown], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// leftOut are the lines at the end of a run.
func (c *course) leftOut() (lines []string) {
	for _, tool := range slices.Sorted(maps.Keys(c.missing)) {
		lines = append(lines, fmt.Sprintf("left out: %s %s: make test-all installs it", tests(c.missing[tool], "need"), tool))
	}
	if c.repeats > 0 {
		lines = append(lines, fmt.Sprintf("left out: repetitions and long tests (%d): make test-all runs them", c.repeats))
	}
	return lines
}

func tests(n int, verb string) string {
	if n == 1 {
		return "1 test " + verb + "s"
	}
	return fmt.Sprintf("%d tests %s", n, verb)
}
