// Package ledger is the handlers' own record, independent of the product, to compare its
// records with: one file for each start of a worker, a line when an execution begins and
// a line when it ends. An executor's has a line, too, for each claim that went on under
// another token, because another worker adopted it.
//
// A line is one write to an append-only file. The kernel has it when the write returns,
// so the end of the process loses nothing; only the end of the machine would, and then
// there is nothing to check.
package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Suffix of the files.
const Suffix = ".ledger"

// Outcome is how an execution ended, according to its handler.
type Outcome string

// The outcomes. An execution without one was cut off.
const (
	Succeeded Outcome = "success"
	Failed    Outcome = "failure"
	Told      Outcome = "told" // its context ended, and it returned
)

// Execution is one run of a handler.
type Execution struct {
	Instance string // which start of which worker
	Task     uuid.UUID
	Step     string
	Attempt  int
	Token    int64            // of its claim: the fence
	Adopted  []int64          // the tokens that the claim got later, in order
	Remote   bool             // in an executor
	Parents  map[string]int64 // tokens of the claims that gave the results it was handed
	Start    time.Time
	End      time.Time // zero: cut off
	Outcome  Outcome
}

// Tokens are all that its claim has had.
func (x *Execution) Tokens() []int64 { return append([]int64{x.Token}, x.Adopted...) }

// Fence is the token that counts in the end.
func (x *Execution) Fence() int64 { return x.Tokens()[len(x.Adopted)] }

// line is a line of the file.
type line struct {
	Token   int64            `json:"k"`
	At      int64            `json:"at"` // microseconds since 1970
	Task    uuid.UUID        `json:"t,omitzero"`
	Step    string           `json:"s,omitempty"`
	Attempt int              `json:"a,omitempty"`
	Parents map[string]int64 `json:"p,omitempty"`
	Remote  bool             `json:"r,omitempty"`
	Outcome Outcome          `json:"o,omitempty"` // set in the line of an end
	Next    int64            `json:"n,omitempty"` // set in the line of an adoption: the new token
}

// Writer appends to the file of one start of a worker. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex
	file *os.File
}

// File is that of one start of a worker or executor.
func File(dir, instance string) string { return filepath.Join(dir, instance+Suffix) }

// Create begins a new file; instance must be new in dir.
func Create(dir, instance string) (*Writer, error) {
	f, err := os.OpenFile(File(dir, instance), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("begin the ledger: %w", err)
	}
	return &Writer{file: f}, nil
}

// Begin notes that an execution has begun.
func (w *Writer) Begin(x Execution) error {
	return w.write(line{Token: x.Token, At: x.Start.UnixMicro(), Task: x.Task, Step: x.Step, Attempt: x.Attempt, Parents: x.Parents})
}

// End notes how the execution of a claim has ended.
func (w *Writer) End(token int64, at time.Time, outcome Outcome) error {
	return w.write(line{Token: token, At: at.UnixMicro(), Outcome: outcome})
}

func (w *Writer) write(l line) error {
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("write to the ledger: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write to the ledger: %w", err)
	}
	return nil
}

// Close ends the file.
func (w *Writer) Close() error { return w.file.Close() }

// Read returns the executions of all files in dir, those of one file in the order in
// which they began.
func Read(dir string) ([]Execution, error) {
	return ReadOf(dir, func(string) bool { return true })
}

// ReadOf is Read for the files of those instances for which of reports true.
func ReadOf(dir string, of func(instance string) bool) ([]Execution, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+Suffix))
	if err != nil {
		return nil, fmt.Errorf("list the ledger: %w", err)
	}
	var all []Execution
	for _, file := range files {
		instance := strings.TrimSuffix(filepath.Base(file), Suffix)
		if !of(instance) {
			continue
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		list, err := parse(bytes.NewReader(b), instance)
		if err != nil {
			return nil, fmt.Errorf("read the ledger %s: %w", file, err)
		}
		all = append(all, list...)
	}
	return all, nil
}

// parse reads one file. A last line without an end was cut off by a kill.
func parse(r io.Reader, instance string) ([]Execution, error) {
	var list []Execution
	at, next := map[int64]int{}, map[int64]int64{}
	in := bufio.NewReader(r)
	for {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			adopt(list, next)
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("%w in %q", err, text)
		}
		i, begun := at[l.Token]
		switch {
		case l.Next != 0: // perhaps before the handler begins
			next[l.Token] = l.Next
		case l.Outcome == "":
			// A second beginning under the same token is left to the checker.
			at[l.Token] = len(list)
			list = append(list, Execution{Instance: instance, Task: l.Task, Step: l.Step, Attempt: l.Attempt, Token: l.Token,
				Remote: l.Remote, Parents: l.Parents, Start: time.UnixMicro(l.At)})
		case !begun:
			return nil, fmt.Errorf("an execution under token %d ended and never began", l.Token)
		default:
			list[i].End, list[i].Outcome = time.UnixMicro(l.At), l.Outcome
		}
	}
}

// adopt gives the executions the later tokens of their claims.
func adopt(list []Execution, next map[int64]int64) {
	for i := range list {
		for token := next[list[i].Token]; token != 0; token = next[token] {
			list[i].Adopted = append(list[i].Adopted, token)
		}
	}
}
