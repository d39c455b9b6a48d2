package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// buildTime is for a busy machine with an empty build cache.
const buildTime = 20 * time.Minute

// ErrNoHistory says that the repository is no git repository, or a shallow one.
var ErrNoHistory = errors.New("the history of the repository is not here")

// Main is what TestMain does for tests that run the programs: it builds them, all or the
// named ones of cmd, runs the tests with their folder, and returns the exit code.
func Main(root string, run func(binDir string) int, programs ...string) int {
	dir, err := os.MkdirTemp("", "tasker-programs-*")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
		ctx, cancel := context.WithTimeout(context.Background(), buildTime)
		defer cancel()
		err = Build(ctx, root, dir, false, programs...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run(dir)
}

// Build compiles programs of cmd into dir, with the flags of `make demo`, so that what they share is
// compiled once: all of them, or those named; root is the folder of go.mod. race adds the race
// detector.
func Build(ctx context.Context, root, dir string, race bool, programs ...string) error {
	args := []string{"build"}
	if race {
		args = append(args, "-race")
	}
	args = append(args, "-o", dir+string(filepath.Separator))
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	if len(programs) == 0 {
		args = append(args, "./cmd/...")
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// BuildBefore compiles the programs of the commit before the one that added a file, which it
// takes from git; scratch is an empty folder for its source. The error is ErrNoHistory where
// git does not have it.
func BuildBefore(ctx context.Context, root, file, scratch, dir string, programs ...string) error {
	git := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = root
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err
	}
	if shallow, err := git("rev-parse", "--is-shallow-repository"); err != nil || shallow != "false" {
		return ErrNoHistory
	}
	before, err := git("log", "--diff-filter=A", "--format=%H^", "--", file)
	if err != nil {
		return fmt.Errorf("find the commit that added %s: %w", file, err)
	}
	if before == "" {
		before = "HEAD" // the file is not committed yet
	}
	archive := filepath.Join(scratch, "source.tar")
	if _, err = git("archive", "-o", archive, before); err != nil {
		return fmt.Errorf("export %s: %w", before, err)
	}
	if out, err := exec.CommandContext(ctx, "tar", "-C", scratch, "-xf", archive).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", archive, err, out)
	}
	return Build(ctx, scratch, dir, false, programs...)
}
