//go:build unix

package pgtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestServersKeepTheirDataWhereTMPDIRSays(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	require.Empty(t, dataRoot())
	require.Equal(t, dir, root("some-server"))
}

func TestWithoutTMPDIRServersAreWhereThereIsRoom(t *testing.T) {
	t.Setenv("TMPDIR", "")
	require.False(t, roomy(t.TempDir()), "no file system in memory, or not for all users")
	if !roomy(memory) {
		require.Empty(t, dataRoot())
		require.Equal(t, os.TempDir(), root("some-server"))
		return
	}
	require.Equal(t, memory, dataRoot())
	require.Equal(t, memory, root("some-server"))
	private := Private(t, nil)
	require.Equal(t, memory, filepath.Dir(private.DataDir()))
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	s := mustAcquire(t)
	require.Same(t, s, mustAcquire(t))
	own := &server{dsn: s.dsn, admin: s.admin} // no other test takes the kept ones
	first, err := own.connect(t.Context())
	require.NoError(t, err)
	second, err := own.connect(t.Context())
	require.NoError(t, err)
	require.NotSame(t, first, second)
	own.release(first)
	again, err := own.connect(t.Context())
	require.NoError(t, err)
	require.Same(t, first, again)
	require.NoError(t, again.Close(t.Context()))
	own.release(again)
	require.Empty(t, own.idle, "what is closed is of no use")
	own.release(second)
	require.NoError(t, own.kept().Close(t.Context()))
}
