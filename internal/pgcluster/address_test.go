//go:build unix

package pgcluster

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTheAddressStaysWhenThePortIsTaken by another program: the server gives TCP up, and takes it again later.
func TestTheAddressStaysWhenThePortIsTaken(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	c := start(t, Options{DataDir: dir})
	address, port := c.SocketDSN(Superuser), c.Port()
	require.Equal(t, filepath.Join(dir, runDir), c.socketDir)
	stop(t, c)

	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Skipf("another test has the port: %v", err)
	}
	var told []string
	c = start(t, Options{DataDir: dir, Tell: func(what string) { told = append(told, what) }})
	require.Equal(t, address, c.SocketDSN(Superuser))
	require.Empty(t, query(t, address, "SHOW listen_addresses"))
	why := "Another program has port " + strconv.Itoa(port) + "; PostgreSQL listens on its socket alone."
	require.Equal(t, []string{why}, told)
	require.NoError(t, c.Restart(t.Context()))
	require.Empty(t, query(t, address, "SHOW listen_addresses"), "for this run")
	stop(t, c)
	require.NoError(t, l.Close())

	c = start(t, Options{DataDir: dir})
	require.Equal(t, address, c.SocketDSN(Superuser))
	require.Equal(t, "127.0.0.1", query(t, address, "SHOW listen_addresses"))
}

// TestALongPathHasAShortSocket, always the same, which only the server's user can enter; so has one with characters
// that programs read differently.
func TestALongPathHasAShortSocket(t *testing.T) {
	t.Parallel()
	base := dataDir(t)
	for _, name := range []string{strings.Repeat("long/", 30) + "data", "of a, user"} {
		dir := filepath.Join(base, name)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		c := start(t, Options{DataDir: dir})
		address, socketDir := c.SocketDSN(Superuser), c.socketDir
		t.Cleanup(func() { _ = os.RemoveAll(socketDir) })
		require.LessOrEqual(t, len(socketDir+"/"+longestSocket), maxSocketPath)
		require.Equal(t, "1", query(t, address, "SELECT '1'"))
		info, err := os.Stat(socketDir)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		require.True(t, c.runAs.owns(info))
		stop(t, c)
		require.DirExists(t, socketDir, "no other user can take its place")
		require.NoError(t, os.RemoveAll(socketDir), "as when the machine starts")
		c = start(t, Options{DataDir: dir})
		require.Equal(t, address, c.SocketDSN(Superuser))
		stop(t, c)
	}
}

// TestASocketDirectoryOfAStranger is not used.
func TestASocketDirectoryOfAStranger(t *testing.T) {
	t.Parallel()
	a, err := serverAccount()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "file")
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(t.TempDir(), link))
	for _, path := range []string{file, link} {
		err := a.privateDir(path)
		if a == nil {
			require.ErrorContains(t, err, "is not a directory of this user")
			continue
		}
		require.NoError(t, err, "root takes the place")
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.True(t, info.IsDir() && a.owns(info))
	}
	open := filepath.Join(t.TempDir(), "open")
	require.NoError(t, a.privateDir(open))
	require.NoError(t, os.Chmod(open, 0o777))
	require.NoError(t, a.privateDir(open))
	info, err := os.Stat(open)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.ErrorContains(t, a.privateDir(filepath.Join(open, "no", "such")), "create socket directory")
}
