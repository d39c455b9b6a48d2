//go:build unix

package pgcluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func silent(string) {}

// fakeInstallation makes server programs that report a version.
func fakeInstallation(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700))
	}
	return dir
}

func TestFindReadsTheVersion(t *testing.T) {
	tests := map[string]struct {
		says  string
		major int
		ok    bool
	}{
		"release":   {"15.14 (Debian 15.14-0+deb12u1)", 15, true},
		"beta":      {"19beta1", 19, true},
		"oldest":    {"14.0", 14, true},
		"too old":   {"13.22", 0, false},
		"very old":  {"9.6.24", 0, false},
		"something": {"unknown", 0, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := fakeInstallation(t, tt.says)
			t.Setenv(BinEnv, dir)
			t.Setenv(VersionEnv, "")
			b, err := Find(t.Context(), 0, silent)
			if !tt.ok {
				var missing *NotFoundError
				require.ErrorAs(t, err, &missing)
				require.Len(t, missing.Found, 1, "the reason for passing it over")
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.major, b.Major)
			require.Equal(t, dir, b.Dir)
			require.Equal(t, filepath.Join(dir, "initdb"), b.Program("initdb"))
		})
	}
}

func TestFindSaysWhatToInstall(t *testing.T) {
	t.Setenv(BinEnv, t.TempDir())
	t.Setenv(VersionEnv, "")
	_, err := Find(t.Context(), 0, silent)
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "sudo apt-get install -y postgresql\n")
	require.ErrorContains(t, err, "dnf install")
	require.ErrorContains(t, err, `"main"`)
	require.ErrorContains(t, err, BinEnv)

	t.Setenv(BinEnv, fakeInstallation(t, "16.4"))
	_, err = Find(t.Context(), 17, silent)
	require.ErrorAs(t, err, &missing)
	require.Equal(t, 17, missing.Major)
	require.ErrorContains(t, err, "postgresql-17")
	b, err := Find(t.Context(), 16, silent)
	require.NoError(t, err)
	require.Equal(t, "16.4", b.Version)
}

func TestFindTakesWhatIsInstalled(t *testing.T) {
	t.Parallel()
	b, err := Find(t.Context(), 0, silent)
	require.NoError(t, err)
	require.GreaterOrEqual(t, b.Major, MinMajor)
	require.FileExists(t, b.Postgres())
}
