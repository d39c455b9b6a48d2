//go:build unix

package pgcluster

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestForeignDataDirectoryIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("15\n"), 0o600))
	_, err := Start(t.Context(), Options{DataDir: dir})
	require.ErrorContains(t, err, "not made by Tasker")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestVersionOfTheDataDecides(t *testing.T) {
	t.Parallel()
	c := &Cluster{dataDir: t.TempDir()}
	pgdata := c.pgdata()
	require.NoError(t, os.Mkdir(pgdata, 0o700))
	b, err := c.chooseBinaries(t.Context())
	require.NoError(t, err, "no data yet: the newest")
	require.NotZero(t, b.Major)

	require.NoError(t, os.WriteFile(filepath.Join(pgdata, "PG_VERSION"), []byte("9\n"), 0o600))
	_, err = c.chooseBinaries(t.Context())
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, 9, missing.Major)

	c.opts.Binaries = b
	_, err = c.chooseBinaries(t.Context())
	c.opts.Binaries = Binaries{}
	require.ErrorContains(t, err, "belongs to PostgreSQL 9")

	require.NoError(t, os.WriteFile(filepath.Join(pgdata, "PG_VERSION"), []byte("what?\n"), 0o600))
	_, err = c.chooseBinaries(t.Context())
	require.ErrorContains(t, err, "read the version")
}

func TestPasswordIsKeptAndPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	first, err := loadOrCreatePassword(path, "")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(first), 26, "128 random bits")
	again, err := loadOrCreatePassword(path, "")
	require.NoError(t, err)
	require.Equal(t, first, again)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestSocketPathFits(t *testing.T) {
	a, err := serverAccount()
	require.NoError(t, err)
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 20))
	require.NoError(t, os.MkdirAll(long, 0o755))
	t.Setenv("TMPDIR", long)
	dir, err := makeSocketDir(a)
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	require.LessOrEqual(t, len(dir+"/.s.PGSQL.65535"), maxSocketPath)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "closed to other users: it needs no password")
}

func TestClosedParentIsExplained(t *testing.T) {
	t.Parallel()
	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o700))
	stranger := &account{name: "stranger", uid: 54321, gid: 54321}
	wanted := filepath.Join(closed, "not", "there", "yet")
	err := stranger.canReach(wanted)
	var unreachable *UnreachableError
	require.ErrorAs(t, err, &unreachable)
	require.Equal(t, closed, unreachable.Closed)
	require.ErrorContains(t, err, "stranger")
	require.NoError(t, (*account)(nil).canReach(wanted), "we reach our own directories")
	require.NoError(t, stranger.canReach("/usr/bin"))

	link := filepath.Join("/tmp", filepath.Base(t.TempDir())+"-link-"+strings.ReplaceAll(filepath.Base(closed), "/", ""))
	link += "-" + time.Now().Format("150405.000000000")
	require.NoError(t, os.Symlink(closed, link))
	defer func() { _ = os.Remove(link) }()
	require.ErrorAs(t, stranger.canReach(link), &unreachable, "what a link points at counts")
}

func TestSuggestDataDir(t *testing.T) {
	t.Parallel()
	dir, reason, err := SuggestDataDir("/var/tmp/tasker-wish")
	require.NoError(t, err)
	require.Equal(t, "/var/tmp/tasker-wish", dir)
	require.Empty(t, reason)

	closed := t.TempDir()
	require.NoError(t, os.Chmod(closed, 0o700))
	wish := filepath.Join(closed, "dev")
	dir, reason, err = SuggestDataDir(wish)
	require.NoError(t, err)
	if os.Geteuid() != 0 {
		require.Equal(t, wish, dir)
		return
	}
	require.Equal(t, "/var/tmp/tasker-0-dev", dir)
	require.Contains(t, reason, dir)
}

func TestSweepRemovesOnlyDeadEphemeralClusters(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	old := time.Now().Add(-time.Hour)
	make1 := func(name string, when time.Time) string {
		dir := filepath.Join(base, name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, lockFile), nil, 0o600))
		require.NoError(t, os.Chtimes(dir, when, when))
		return dir
	}
	dead := make1(ephemeralPrefix+"dead", old)
	young := make1(ephemeralPrefix+"young", time.Now())
	other := make1("other", old)
	used := make1(ephemeralPrefix+"used", old)
	lock, err := tryLock(filepath.Join(used, lockFile))
	require.NoError(t, err)
	defer unlockFile(lock)

	sweepEphemeral(base)
	require.NoDirExists(t, dead)
	require.DirExists(t, young)
	require.DirExists(t, other)
	require.DirExists(t, used)
}

// TestALockIsGivenBackThoughItsFileIsOpen in a process that was forked meanwhile and has not closed its copy yet.
func TestALockIsGivenBackThoughItsFileIsOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), lockFile)
	lock, err := tryLock(path)
	require.NoError(t, err)
	fork, err := syscall.Dup(int(lock.Fd()))
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(fork)) }()
	_, err = tryLock(path)
	require.ErrorIs(t, err, errLocked)
	unlockFile(lock)
	lock, err = tryLock(path)
	require.NoError(t, err)
	unlockFile(lock)
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{})
	require.ErrorContains(t, err, "a data directory is needed")

	existing := t.TempDir()
	_, err = Start(t.Context(), Options{Ephemeral: true, DataDir: existing})
	require.ErrorContains(t, err, "exists already")
	require.DirExists(t, existing)
}
