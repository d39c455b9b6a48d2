package rig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Busy is how the CPU time of the machine has been spent so far.
type Busy struct {
	At time.Time
	// Total is the busy time of the machine, Own the part of it that this program and its
	// descendants spent.
	Total, Own time.Duration
	// Waited is the time in which CPUs were idle because of a disk, Stolen the
	// time that the host did not give.
	Waited, Stolen time.Duration
}

// Shares are parts of the machine's CPU time, 0 to 1.
type Shares struct{ Own, Others, Waited, Stolen float64 }

// ReadBusy reads how the time has been spent.
func ReadBusy() (Busy, error) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Busy{}, fmt.Errorf("read the times of the machine: %w", err)
	}
	b, err := parseBusy(string(raw))
	if err != nil {
		return Busy{}, err
	}
	b.At = time.Now()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return Busy{}, fmt.Errorf("list processes: %w", err)
	}
	all := make(map[int]procStat, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(filepath.Base(e))
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil { // it may have ended meanwhile
			all[pid] = s
		}
	}
	b.Own = timesBelow(all, os.Getpid())
	return b, nil
}

// Since returns the shares since an earlier reading.
func (b Busy) Since(before Busy, cpus int) Shares {
	passed := b.At.Sub(before.At).Seconds() * float64(cpus)
	if passed <= 0 {
		return Shares{}
	}
	own := (b.Own - before.Own).Seconds() / passed
	return Shares{
		Own: own, Others: max(0, (b.Total-before.Total).Seconds()/passed-own),
		Waited: (b.Waited - before.Waited).Seconds() / passed, Stolen: (b.Stolen - before.Stolen).Seconds() / passed,
	}
}

// parseBusy reads the first line of /proc/stat. Times of guests are included in others.
func parseBusy(text string) (Busy, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	const user, idle, iowait, steal = 1, 4, 5, 8
	if len(fields) <= steal || fields[0] != "cpu" {
		return Busy{}, errors.New("no times of all CPUs in /proc/stat")
	}
	var b Busy
	for i := user; i <= steal; i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return Busy{}, fmt.Errorf("read /proc/stat: %w", err)
		}
		spent := time.Duration(n) * tick
		switch i {
		case idle:
		case iowait:
			b.Waited = spent
		case steal:
			b.Stolen = spent
		default:
			b.Total += spent
		}
	}
	return b, nil
}

// timesBelow adds up the times of a process, its ended children, and its living ones,
// recursively.
func timesBelow(all map[int]procStat, root int) time.Duration {
	below := make(map[int][]int, len(all))
	for pid, s := range all {
		below[s.parent] = append(below[s.parent], pid)
	}
	var sum time.Duration
	for todo := []int{root}; len(todo) > 0; {
		pid := todo[len(todo)-1]
		todo = append(todo[:len(todo)-1], below[pid]...)
		sum += all[pid].own + all[pid].children
	}
	return sum
}
