package volume_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/volume"
)

// unmountable is why no volume can be mounted here.
var unmountable error

// outerEnv names the namespace of the first program for the confined one.
const outerEnv = "CHAOS_TEST_OUTER_NAMESPACE"

func namespace() string {
	name, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err.Error()
	}
	return name
}

func TestMain(m *testing.M) {
	if os.Getenv(outerEnv) == "" {
		if err := os.Setenv(outerEnv, namespace()); err != nil {
			panic(err)
		}
	}
	os.Exit(volume.Confined(func(why error) int {
		unmountable = why
		return m.Run()
	}))
}

// TestAVolumeIsFullAndFreeAgain: where none can be mounted it checks that the reason is
// returned.
func TestAVolumeIsFullAndFreeAgain(t *testing.T) {
	base := t.TempDir()
	if unmountable != nil {
		var refusal syscall.Errno
		require.ErrorAs(t, unmountable, &refusal)
		t.Logf("no volumes here: %v", unmountable)
		return
	}
	v, err := volume.Mount(base, 8<<20)
	require.NoError(t, err)
	data := filepath.Join(v.Dir(), "data")
	require.NoError(t, os.WriteFile(data, bytes.Repeat([]byte("x"), 3<<20), 0o600))

	for range 2 {
		require.NoError(t, v.Fill())
		require.ErrorIs(t, os.WriteFile(filepath.Join(v.Dir(), "more"), []byte("x"), 0o600), syscall.ENOSPC)
		require.NoError(t, os.Truncate(data, 1<<20))
		require.NoError(t, os.WriteFile(filepath.Join(v.Dir(), "more"), []byte("x"), 0o600))
		require.NoError(t, os.Remove(filepath.Join(v.Dir(), "more")))
		require.NoError(t, v.Fill(), "the freed room")
		require.ErrorIs(t, os.WriteFile(filepath.Join(v.Dir(), "more"), []byte("x"), 0o600), syscall.ENOSPC)
		require.NoError(t, v.Free())
		require.NoError(t, v.Free(), "twice is harmless")
		require.NoError(t, os.WriteFile(data, bytes.Repeat([]byte("x"), 3<<20), 0o600))
		require.NoError(t, os.Remove(filepath.Join(v.Dir(), "more")))
	}

	// A file on it is open: it is removed nevertheless.
	f, err := os.Open(data)
	require.NoError(t, err)
	require.NoError(t, v.Fill())
	require.NoError(t, v.Close())
	require.NoError(t, f.Close())
	left, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestNobodyElseSeesVolumes: they are in the program's own namespace.
func TestNobodyElseSeesVolumes(t *testing.T) {
	if unmountable == nil {
		require.NotEqual(t, os.Getenv(outerEnv), namespace())
	}
}
