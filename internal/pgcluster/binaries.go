package pgcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MinMajor is the oldest major version of PostgreSQL that is used.
const MinMajor = 14

// BinEnv names the environment variable that points at a directory with initdb and postgres.
// When it is set no other place is searched.
const BinEnv = "TASKER_PG_BIN"

// versionTimeout bounds `postgres --version`.
const versionTimeout = 10 * time.Second

// Binaries is one installation of PostgreSQL's server programs.
type Binaries struct {
	// Dir is the absolute directory that holds them.
	Dir string
	// Version is the version that the server reports, for example "15.14".
	Version string
	// Major is the leading number of Version. A data directory belongs to one major
	// version for ever.
	Major int
}

// Program is the path of one of the programs.
func (b Binaries) Program(name string) string {
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return filepath.Join(b.Dir, name)
}

// Postgres is the path of the server program.
func (b Binaries) Postgres() string { return b.Program("postgres") }

// NotFoundError says that no usable PostgreSQL is installed, which places were searched and
// what to install.
type NotFoundError struct {
	// Major is the required version, 0 when any from MinMajor on would do.
	Major int
	// Looked lists the directories that were examined.
	Looked []string
	// Found lists installations that could not be used, with the reason.
	Found []string
	// Fetch is why none was fetched; nil where none may be.
	Fetch error
}

// Error implements error; the text is for users.
func (e *NotFoundError) Error() string {
	var b strings.Builder
	if e.Major != 0 {
		fmt.Fprintf(&b, "no PostgreSQL %d server programs (initdb, postgres) found; the data directory or %s asks for that version\n", e.Major, VersionEnv)
	} else {
		fmt.Fprintf(&b, "no PostgreSQL server programs (initdb, postgres) of version %d or later found\n", MinMajor)
	}
	for _, f := range e.Found {
		fmt.Fprintf(&b, "  passed over: %s\n", f)
	}
	fmt.Fprintf(&b, "  looked in: %s\n", strings.Join(e.Looked, ", "))
	if e.Fetch != nil {
		fmt.Fprintf(&b, "  not fetched: %v\n", e.Fetch)
	}
	suffix, dashed := "", ""
	if e.Major != 0 {
		suffix, dashed = strconv.Itoa(e.Major), "-"+strconv.Itoa(e.Major)
	}
	b.WriteString("Install it:\n")
	fmt.Fprintf(&b, "  Debian, Ubuntu:        sudo apt-get install -y postgresql%s\n", dashed)
	b.WriteString("                         (the package also creates a cluster of its own named \"main\"; Tasker never touches it)\n")
	b.WriteString("  Fedora, RHEL, Rocky:   sudo dnf install -y postgresql-server\n")
	b.WriteString("  openSUSE:              sudo zypper install -y postgresql-server\n")
	b.WriteString("  Arch:                  sudo pacman -S postgresql\n")
	fmt.Fprintf(&b, "  Alpine:                sudo apk add postgresql%s\n", suffix)
	fmt.Fprintf(&b, "  macOS:                 brew install postgresql%s\n", map[bool]string{true: "@" + suffix, false: "@17"}[e.Major != 0])
	fmt.Fprintf(&b, "or set %s to the directory that holds initdb and postgres, or %s to a Maven repository to fetch from.", BinEnv, MirrorEnv)
	return b.String()
}

// Unwrap returns why none was fetched.
func (e *NotFoundError) Unwrap() error { return e.Fetch }

// Find returns an installed PostgreSQL of this major version, or with 0 that of VersionEnv, else
// the newest from MinMajor on. It starts `postgres --version` of each candidate and takes some
// milliseconds; where there is none it fetches one, which tell is told. The error is a
// *NotFoundError when there is none.
func Find(ctx context.Context, major int, tell func(string)) (Binaries, error) {
	if text := os.Getenv(VersionEnv); text != "" && major == 0 {
		var err error
		if major, err = strconv.Atoi(text); err != nil || major < MinMajor {
			return Binaries{}, fmt.Errorf("invalid %s %q: want a major version from %d on", VersionEnv, text, MinMajor)
		}
	}

	dirs := candidateDirs()
	missing := &NotFoundError{Major: major, Looked: dirs}
	var usable []Binaries
	for _, dir := range dirs {
		b, err := inspect(ctx, dir)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			missing.Found = append(missing.Found, fmt.Sprintf("%s: %v", dir, err))
		case b.Major < MinMajor:
			missing.Found = append(missing.Found, fmt.Sprintf("%s: version %s is older than %d", dir, b.Version, MinMajor))
		case major != 0 && b.Major != major:
			missing.Found = append(missing.Found, fmt.Sprintf("%s: version %s", dir, b.Version))
		default:
			usable = append(usable, b)
		}
	}
	if len(usable) == 0 && os.Getenv(BinEnv) != "" {
		return Binaries{}, missing
	}
	if len(usable) == 0 {
		b, err := fetch(ctx, major, tell)
		if err != nil {
			missing.Fetch = err
			return Binaries{}, missing
		}
		return b, nil
	}
	// Stable: among equals the earlier place wins.
	slices.SortStableFunc(usable, func(a, b Binaries) int { return b.Major - a.Major })
	return usable[0], nil
}

// candidateDirs lists the directories to examine, without duplicates.
func candidateDirs() []string {
	if dir := os.Getenv(BinEnv); dir != "" {
		return []string{dir}
	}
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// Debian and Homebrew put links on PATH; initdb looks for its share
		// directory beside the real program.
		if target, err := filepath.EvalSymlinks(p); err == nil {
			p = target
		}
		if abs, err := filepath.Abs(p); err == nil {
			dirs = append(dirs, filepath.Dir(abs))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // PGDG packages for Red Hat
		"/usr/lib/postgresql*/bin",  // SUSE
		"/usr/libexec/postgresql*",  // Alpine
		"/usr/local/pgsql/bin",      // built from source
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			dirs = append(dirs, pattern)
			continue
		}
		dirs = append(dirs, found...)
	}
	known := map[string]bool{}
	return slices.DeleteFunc(dirs, func(dir string) bool {
		again := known[dir]
		known[dir] = true
		return again
	})
}

var versionPattern = regexp.MustCompile(`PostgreSQL\)\s+(\d+)(\S*)`)

// inspect runs the server program in dir for its version. The error is os.ErrNotExist when
// the directory holds no server programs.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	b := Binaries{Dir: dir}
	for _, p := range []string{b.Postgres(), b.Program("initdb")} {
		if _, err := os.Stat(p); err != nil {
			return b, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, b.Postgres(), "--version").Output()
	if err != nil {
		return b, fmt.Errorf("run %s --version: %w", b.Postgres(), err)
	}
	m := versionPattern.FindStringSubmatch(string(out))
	if m == nil {
		return b, fmt.Errorf("no version in %q", strings.TrimSpace(string(out)))
	}
	b.Version = m[1] + m[2]
	if b.Major, err = strconv.Atoi(m[1]); err != nil {
		return b, fmt.Errorf("read version %q: %w", b.Version, err)
	}
	return b, nil
}
