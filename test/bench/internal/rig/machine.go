package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// Settings is the configuration of the servers.
const Settings = "stock settings but for wal_level = logical and max_connections = 200"

// Machine describes the environment of the run; unknown values stay empty. It measures
// the duration of a commit.
func (r *Rig) Machine(ctx context.Context, root string) (report.Machine, error) {
	m := report.Machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(),
		PostgreSQL: r.stock.Binaries().Version, Settings: Settings,
		CPU: field("/proc/cpuinfo", "model name"), Kernel: firstLine("/proc/sys/kernel/osrelease"), Commit: commitOf(ctx, root),
	}
	if kb, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryMB = kb / 1024
	}
	commit, err := r.commit(ctx)
	m.CommitMS = report.Millis(commit)
	return m, err
}

// field is the value of the first line "name: value" of a file.
func field(file, name string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(file string) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return line
}

// commitOf is the commit that is checked out, with a plus where files differ.
func commitOf(ctx context.Context, root string) string {
	git := func(args ...string) string {
		cmd := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks", "-C", root}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	commit := git("rev-parse", "--short=12", "HEAD")
	if commit == "" {
		return "unknown"
	}
	if git("status", "--porcelain") != "" {
		commit += " with changes"
	}
	return commit
}

// commit is the duration of a transaction of one small row, median of 200.
func (r *Rig) commit(ctx context.Context) (time.Duration, error) {
	d, err := r.Database(ctx, r.stock)
	if err != nil {
		return 0, err
	}
	defer func() { _ = d.Drop() }() // the server is removed after the run
	conn, err := d.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer CloseConn(conn)
	if _, err := conn.Exec(ctx, `create table commits (n int)`); err != nil {
		return 0, fmt.Errorf("make a table: %w", err)
	}
	var took []time.Duration
	for i := range 200 {
		begin := time.Now()
		if _, err := conn.Exec(ctx, `insert into commits values ($1)`, i); err != nil {
			return 0, fmt.Errorf("commit a row: %w", err)
		}
		took = append(took, time.Since(begin))
	}
	return stats.Summarize(took).P50, nil
}
