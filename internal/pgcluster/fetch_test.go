//go:build unix

package pgcluster

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

// archive makes a jar as the repository has them, with its checksum.
func archive(t *testing.T, entries ...tar.Header) (jar []byte, sum string) {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	inner, err := z.Create("postgres-some-machine.txz")
	require.NoError(t, err)
	compressed, err := xz.NewWriter(inner)
	require.NoError(t, err)
	files := tar.NewWriter(compressed)
	const script = "#!/bin/sh\necho 'postgres (PostgreSQL) 18.6'\n"
	for _, header := range entries {
		if header.Typeflag == tar.TypeReg {
			header.Size = int64(len(script))
		}
		require.NoError(t, files.WriteHeader(&header))
		if header.Typeflag == tar.TypeReg {
			_, err := files.Write([]byte(script))
			require.NoError(t, err)
		}
	}
	require.NoError(t, files.Close())
	require.NoError(t, compressed.Close())
	require.NoError(t, z.Close())
	hash := sha256.Sum256(out.Bytes())
	return out.Bytes(), hex.EncodeToString(hash[:])
}

func server() []tar.Header {
	return []tar.Header{
		{Typeflag: tar.TypeDir, Name: "bin/", Mode: 0o700},
		{Typeflag: tar.TypeReg, Name: "bin/postgres", Mode: 0o700},
		{Typeflag: tar.TypeReg, Name: "bin/initdb", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: "share/postgres.bki", Mode: 0o600},
		{Typeflag: tar.TypeSymlink, Name: "lib/libpq.so", Linkname: "libpq.so.5"},
	}
}

// repository answers every request with the jar and counts them.
func repository(t *testing.T, jar []byte) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if !strings.HasSuffix(r.URL.Path, "/embedded-postgres-binaries-"+platform()+"/18.6.0/embedded-postgres-binaries-"+platform()+"-18.6.0.jar") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(jar)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/maven2/", asked
}

func TestABuildIsFetchedOnce(t *testing.T) {
	t.Parallel()
	jar, sum := archive(t, server()...)
	url, asked := repository(t, jar)
	base := filepath.Join(t.TempDir(), "cache")
	var told atomic.Int64
	all := pool.New().WithErrors()
	for range 4 { // each as its own process would: the lock is one of open files
		all.Go(func() error {
			got, err := build{"18.6.0", sum}.install(t.Context(), base, url, func(what string) {
				if strings.HasPrefix(what, "PostgreSQL ") { // others say how far it is
					told.Add(1)
				}
			})
			if err == nil {
				require.Equal(t, Binaries{Dir: filepath.Join(base, "18.6.0", "bin"), Version: "18.6", Major: 18}, got)
			}
			return err
		})
	}
	require.NoError(t, all.Wait())
	require.EqualValues(t, 1, asked.Load())
	require.EqualValues(t, 1, told.Load())
	info, err := os.Stat(filepath.Join(base, "18.6.0", "share", "postgres.bki"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "the server's account reads it")
	target, err := os.Readlink(filepath.Join(base, "18.6.0", "lib", "libpq.so"))
	require.NoError(t, err)
	require.Equal(t, "libpq.so.5", target)
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Len(t, entries, 2, "the build and its lock")
}

func TestABuildThatIsNotTheRightOneIsRefused(t *testing.T) {
	t.Parallel()
	jar, sum := archive(t, server()...)
	outside, outsideSum := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "../postgres", Mode: 0o755})
	linked, linkedSum := archive(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "/tmp"},
		tar.Header{Typeflag: tar.TypeReg, Name: "bin/postgres", Mode: 0o755})
	device, deviceSum := archive(t, tar.Header{Typeflag: tar.TypeFifo, Name: "bin"})
	for name, c := range map[string]struct {
		jar          []byte
		version, sum string
		want         string
	}{
		"another":         {jar, "18.6.0", strings.Repeat("0", 64), "invalid SHA-256 " + sum},
		"cut short":       {jar[:len(jar)-1], "18.6.0", sum, "invalid SHA-256"},
		"missing":         {jar, "18.5.0", sum, "404 Not Found"},
		"leaves its room": {outside, "18.6.0", outsideSum, "escapes"},
		"by a link":       {linked, "18.6.0", linkedSum, "escapes"},
		"a device":        {device, "18.6.0", deviceSum, "neither a file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := repository(t, c.jar)
			base := t.TempDir()
			_, err := build{c.version, c.sum}.install(t.Context(), base, url, silent)
			require.ErrorContains(t, err, c.want)
			entries, err := os.ReadDir(base)
			require.NoError(t, err)
			require.Len(t, entries, 1, "the lock")
		})
	}
}

func TestARepositoryThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := build{"18.6.0", "x"}.install(ctx, t.TempDir(), s.URL, silent)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestVersionsThatMayBeFetched(t *testing.T) {
	t.Parallel()
	newest, err := buildFor("linux-amd64", 0)
	require.NoError(t, err)
	require.Equal(t, 18, newest.major())
	for major := MinMajor; major <= newest.major(); major++ {
		b, err := buildFor("linux-amd64", major)
		require.NoError(t, err)
		require.Equal(t, major, b.major())
		require.Len(t, b.sum, 2*sha256.Size)
	}
	_, err = buildFor("linux-amd64", 13)
	require.EqualError(t, err, "no PostgreSQL 13 with a known checksum can be fetched for linux-amd64")
	_, err = buildFor("plan9-386", 0)
	require.EqualError(t, err, "no PostgreSQL with a known checksum can be fetched for plan9-386")
}

func TestTheVersionIsAnUnderstoodOne(t *testing.T) {
	for _, text := range []string{"eighteen", "13", "18.6"} {
		t.Setenv(VersionEnv, text)
		_, err := Find(t.Context(), 0, silent)
		require.EqualError(t, err, `invalid TASKER_POSTGRES_VERSION "`+text+`": want a major version from 14 on`)
	}
	t.Setenv(BinEnv, fakeInstallation(t, "16.4"))
	t.Setenv(VersionEnv, "17")
	_, err := Find(t.Context(), 0, silent)
	var missing *NotFoundError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, 17, missing.Major)
	require.NoError(t, missing.Fetch, "none may be fetched")
	t.Setenv(VersionEnv, "16")
	b, err := Find(t.Context(), 0, silent)
	require.NoError(t, err)
	require.Equal(t, 16, b.Major)
}

// TestWhatIsMissingIsFetched: 99 is on no machine and has no checksum.
func TestWhatIsMissingIsFetched(t *testing.T) {
	t.Parallel()
	_, err := Find(t.Context(), 99, silent)
	require.ErrorContains(t, err, "not fetched: no PostgreSQL 99 with a known checksum can be fetched for "+platform())
	require.ErrorContains(t, err, MirrorEnv)
}
