package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc; it is 10 ms on every Linux that Go
// runs on.
const tick = 10 * time.Millisecond

// procStat are the CPU times of /proc/<pid>/stat.
type procStat struct {
	parent   int
	own      time.Duration
	children time.Duration // that have ended and were waited for
}

// parseStat reads /proc/<pid>/stat. The name of the program may hold spaces
// and brackets, so fields are counted from the last bracket on.
func parseStat(text string) (procStat, error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return procStat{}, fmt.Errorf("no program name in %q", text)
	}
	fields := strings.Fields(text[end+1:])
	const parent, utime, stime, cutime, cstime = 1, 11, 12, 13, 14
	if len(fields) <= cstime {
		return procStat{}, fmt.Errorf("only %d fields after the program name", len(fields))
	}
	var n [5]int64
	for i, at := range []int{parent, utime, stime, cutime, cstime} {
		v, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return procStat{}, fmt.Errorf("read field %d: %w", at, err)
		}
		n[i] = v
	}
	return procStat{parent: int(n[0]), own: time.Duration(n[1]+n[2]) * tick, children: time.Duration(n[3]+n[4]) * tick}, nil
}

func readStat(pid int) (procStat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, fmt.Errorf("read the times of process %d: %w", pid, err)
	}
	return parseStat(string(raw))
}

// CPU is the time a process has spent so far.
func CPU(pid int) (time.Duration, error) {
	s, err := readStat(pid)
	return s.own, err
}

// ServerCPU is the time that PostgreSQL has spent so far: the server, its living
// processes and its ended ones.
func ServerCPU(pid int) (time.Duration, error) {
	server, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	sum := server.own + server.children
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		child, err := strconv.Atoi(filepath.Base(e))
		if err != nil {
			continue
		}
		if s, err := readStat(child); err == nil && s.parent == pid { // it may have ended meanwhile
			sum += s.own + s.children
		}
	}
	return sum, nil
}

// PeakMB is the most memory a process has ever had resident, in megabytes.
func PeakMB(pid int) (float64, error) { return memory(pid, "VmHWM:") }

// ResidentMB is the memory that a process has resident, in megabytes.
func ResidentMB(pid int) (float64, error) { return memory(pid, "VmRSS:") }

func memory(pid int, field string) (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return parseMemory(string(raw), field)
}

func parseMemory(status, field string) (float64, error) {
	for line := range strings.Lines(status) {
		rest, ok := strings.CutPrefix(line, field)
		if !ok {
			continue
		}
		kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
		if err != nil {
			return 0, fmt.Errorf("read %s %w", field, err)
		}
		return kb / 1024, nil
	}
	return 0, fmt.Errorf("no %s in the status", strings.TrimSuffix(field, ":"))
}
