package pgcluster

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

const (
	// VersionEnv names the environment variable with the major version of PostgreSQL to use for
	// new data, such as 18: an installed one, else a fetched one. Empty means the newest.
	VersionEnv = "TASKER_POSTGRES_VERSION"
	// MirrorEnv names the environment variable with the base URL of the Maven repository to
	// fetch from.
	MirrorEnv = "TASKER_POSTGRES_MIRROR"

	mavenCentral = "https://repo1.maven.org/maven2"

	// fetchTimeout bounds one fetch, and the wait for that of another process.
	fetchTimeout = 10 * time.Minute
	// answerTimeout bounds the wait for the answer of the repository to begin.
	answerTimeout = 30 * time.Second
	// maxArchiveBytes bounds what is downloaded, maxUnpackedBytes what comes out of it.
	maxArchiveBytes  = 128 << 20
	maxUnpackedBytes = 1 << 30
)

// build is one archive that may be fetched. Its checksum is part of the program, so that the
// repository need not be trusted.
type build struct{ version, sum string }

func (b build) major() int {
	major, _, _ := strings.Cut(b.version, ".")
	n, _ := strconv.Atoi(major) // of our own table
	return n
}

// builds are the archives io.zonky.test.postgres:embedded-postgres-binaries-<platform>, the
// newest first. One that the repository did not have when the checksums were taken is missing.
var builds = map[string][]build{
	"linux-amd64": {
		{"18.6.0", "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1"},
		{"17.11.0", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"},
		{"16.15.0", "653abc065c682b85d3da50168fb95dc524bd85426cdec9ce3695a550ef431df2"},
		{"15.19.0", "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"},
		{"14.24.0", "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4"},
	},
	"linux-arm64v8": {
		{"18.6.0", "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be"},
		{"17.11.0", "8b042e0ea418b1927d95399207950da0734d27fe01e29503ade3bdc464ad4c2b"},
		{"16.15.0", "f846a9989d686b7977d6eca9bc9d8b2b69e3f70c7eb60e032197d9c574a6136c"},
		{"15.19.0", "95baf4bd4af31b91b3050118df59388ed0064756b556b850669e0300aa7b9911"},
		{"14.23.0", "a55b93f67051a602be033b298461709f88789dccee925236f2fb5a4eaf9dd526"},
	},
	"darwin-amd64": {
		{"18.6.0", "690941008aac9ee360820fde9bb7870a4f3dcac5e9e2f9e45e42333a436ad0f9"},
		{"17.11.0", "d464ff178e9860ba204662ac23fa547504b7fd392392ff2fb92e3fd73b5bdb64"},
		{"16.15.0", "1229188b99515d2160d5cb6222bc96d9c5f3a248268df3bc2dfe0047e6c233d8"},
		{"15.19.0", "11d0a55e26f4c74c6ea6c72c5e4e6ac959b29a06cc6da5e5ac8162f9fd9f8055"},
	},
	"darwin-arm64v8": {
		{"18.6.0", "8f6ed6f38195b50a40712ada8b2a12060b6193c1a6977a6eb5cff053bb5a1b89"},
		{"17.11.0", "a1c2786acb0c398f9b2d76806fc52f5dc8b222cbc8e9383a9b9702084daaf3a5"},
		{"16.15.0", "65b953905f0a4d46030767a6b44a52360170d69a7985f1b02aa435f2f6256a83"},
		{"15.19.0", "9bfc44d3f50298bb14fa125da4b67a36f382f8134ab2fc95349b72bcd5ec4e87"},
		{"14.23.0", "b3afa06270a5db96748ded366b9af590b29035ce16677e88c8ab65d0c455f613"},
	},
	"windows-amd64": {
		{"18.6.0", "b7ef2d03588e0439f0d0a2250f43905f7464f1e96ace47703ceaf79094198150"},
		{"17.11.0", "98040fae18dd9633ff95932125b0cecf0a45a1a9312e216e2a33ad03a31d4251"},
		{"16.15.0", "51c7812dc1af47c9a2ccb64fe74efb88c515cff2da347ce72aab92b4cc8e1191"},
		{"15.19.0", "ae650ee09866166ae357c890bcbc391a9b29202e9400efe59086c1579ea036d1"},
	},
}

// platform is the name of this machine in the archives.
func platform() string {
	return runtime.GOOS + "-" + strings.Replace(runtime.GOARCH, "arm64", "arm64v8", 1)
}

// buildFor returns the build of a major version, or with 0 the newest one.
func buildFor(platform string, major int) (build, error) {
	all := builds[platform]
	i := slices.IndexFunc(all, func(b build) bool { return major == 0 || b.major() == major })
	if i >= 0 {
		return all[i], nil
	}
	what := "PostgreSQL"
	if major != 0 {
		what += " " + strconv.Itoa(major)
	}
	return build{}, fmt.Errorf("no %s with a known checksum can be fetched for %s", what, platform)
}

// cacheDir is where fetched builds are kept. What root fetches must be readable by the
// server's account, which the home of root is not.
func cacheDir(runAs *account) (string, error) {
	if runAs != nil {
		return "/var/cache/tasker/postgresql", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory: %w", err)
	}
	return filepath.Join(dir, "tasker", "postgresql"), nil
}

// fetch returns a fetched build of the major version, 0 for the newest: that of the cache, else
// it is downloaded, which tell is told.
func fetch(ctx context.Context, major int, tell func(string)) (Binaries, error) {
	b, err := buildFor(platform(), major)
	if err != nil {
		return Binaries{}, err
	}
	runAs, err := serverAccount()
	if err != nil {
		return Binaries{}, err
	}
	base, err := cacheDir(runAs)
	if err != nil {
		return Binaries{}, err
	}
	return b.install(ctx, base, cmp.Or(os.Getenv(MirrorEnv), mavenCentral), tell)
}

// install returns the build below base, where the first of several processes puts it.
func (b build) install(ctx context.Context, base, repository string, tell func(string)) (Binaries, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	final := filepath.Join(base, b.version)
	if found, err := inspect(ctx, filepath.Join(final, "bin")); !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	if err := os.MkdirAll(base, 0o755); err != nil { //nolint:gosec // the server's account reads it
		return Binaries{}, fmt.Errorf("create the cache: %w", err)
	}
	lock, err := waitForLock(ctx, final+".lock")
	if err != nil {
		return Binaries{}, err
	}
	defer func() { _ = lock.Close() }()
	if found, err := inspect(ctx, filepath.Join(final, "bin")); !errors.Is(err, fs.ErrNotExist) {
		return found, err // another process was first
	}
	url := fmt.Sprintf("%s/io/zonky/test/postgres/embedded-postgres-binaries-%s/%s/embedded-postgres-binaries-%[2]s-%[3]s.jar",
		strings.TrimSuffix(repository, "/"), platform(), b.version)
	tell(fmt.Sprintf("PostgreSQL %s is fetched into %s from %s", b.version, final, url))
	archive, making := final+".jar", final+".new"
	defer func() { _ = os.Remove(archive) }()
	if err := download(ctx, url, archive, b.sum, tell); err != nil {
		return Binaries{}, err
	}
	tell("  unpacking it")
	if err := errors.Join(os.RemoveAll(making), unpack(archive, making)); err != nil {
		return Binaries{}, errors.Join(fmt.Errorf("unpack %s: %w", url, err), os.RemoveAll(making))
	}
	if err := os.Rename(making, final); err != nil {
		return Binaries{}, fmt.Errorf("put PostgreSQL %s in place: %w", b.version, err)
	}
	return inspect(ctx, filepath.Join(final, "bin"))
}

// waitForLock takes a lock that another process may hold for as long as it fetches.
func waitForLock(ctx context.Context, path string) (*os.File, error) {
	for {
		lock, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		if late := lifecycle.Pause(ctx, 100*time.Millisecond); late != nil {
			return nil, fmt.Errorf("%w: %w", late, err)
		}
	}
}

// progressEvery lies between two lines about how far a download is.
const progressEvery = 5 * time.Second

// progress tells how far a download is; it is used by one goroutine.
type progress struct {
	tell  func(string)
	total int64 // -1: the server does not say
	had   int64
	said  time.Time
}

// Write implements io.Writer.
func (p *progress) Write(b []byte) (int, error) {
	p.had += int64(len(b))
	if time.Since(p.said) >= progressEvery {
		p.said = time.Now()
		of := ""
		if p.total > 0 {
			of = fmt.Sprintf(" of %d", p.total>>20)
		}
		p.tell(fmt.Sprintf("  %d%s MB", p.had>>20, of))
	}
	return len(b), nil
}

// download writes what url answers to a file, if it has the checksum.
func download(ctx context.Context, url, path, sum string, tell func(string)) (err error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: answerTimeout}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil) //nolint:gosec // the operator names the repository
	if err != nil {
		return fmt.Errorf("fetch %s: %w", url, err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request) //nolint:gosec // as above
	if err != nil {
		return fmt.Errorf("fetch: %w", err) // names the URL
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch %s: %s", url, response.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", url, err)
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, hash, &progress{tell: tell, total: response.ContentLength, said: time.Now()}), io.LimitReader(response.Body, maxArchiveBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("fetch %s: %w", url, err)
	}
	if n > maxArchiveBytes {
		return fmt.Errorf("fetch %s: it has more than %d bytes", url, maxArchiveBytes)
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("fetch %s: invalid SHA-256 %s: want %s", url, got, sum)
	}
	return nil
}

// unpack extracts the compressed tar file in a jar into a new directory.
func unpack(jar, dir string) error {
	z, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer func() { _ = z.Close() }()
	i := slices.IndexFunc(z.File, func(f *zip.File) bool { return strings.HasSuffix(f.Name, ".txz") })
	if i < 0 {
		return errors.New("there is no .txz file in it")
	}
	txz, err := z.File[i].Open()
	if err != nil {
		return err
	}
	defer func() { _ = txz.Close() }()
	plain, err := xz.NewReader(txz)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the server's account reads it
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	files := tar.NewReader(io.LimitReader(plain, maxUnpackedBytes))
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = extract(root, header, files)
		}
		if err != nil {
			return err
		}
	}
}

// extract writes one entry; root keeps it inside the directory.
func extract(root *os.Root, header *tar.Header, content io.Reader) error {
	name := filepath.Clean(filepath.FromSlash(header.Name))
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644|fs.FileMode(header.Mode&0o111))
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Close())
	default:
		return fmt.Errorf("%s is neither a file, a directory nor a symbolic link", header.Name)
	}
}
