package pgcluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The address of a cluster is that of its socket: <directory>/.s.PGSQL.<port>. Programs that were given it go on
// with it when the cluster is started again, so a data directory that is kept has one address: its port is kept
// in it, and the socket lies in it as well, or in a directory whose name follows from it.

const (
	socketFile = "socket" // where the socket's directory is
	portFile   = "port"   // the port of the first start
	runDir     = "run"    // of the socket, where its path is short enough

	// socketPrefix begins the name of every socket directory outside its data directory.
	socketPrefix = "tasker-s-"
	// longestSocket is the longest name of a socket.
	longestSocket = ".s.PGSQL.65535"
	// maxSocketPath is the longest path of a Unix socket on macOS (104 bytes with the closing zero), below the
	// 107 of Linux.
	maxSocketPath = 103
	// oddInAddresses are characters that separate the directories of the server's setting, or that programs read
	// differently in a connection string.
	oddInAddresses = ",\"'\\%+ \t\r\n"
)

// useSocketDir makes the directory of the socket and notes where it is.
func (c *Cluster) useSocketDir() error {
	dir, err := c.chooseSocketDir()
	if err != nil {
		return err
	}
	if noted := notedSocketDir(c.dataDir); noted != dir {
		removeOldSocketDir(c.dataDir)
	}
	c.socketDir = dir
	if err := os.WriteFile(filepath.Join(c.dataDir, socketFile), []byte(dir), 0o600); err != nil {
		return fmt.Errorf("note the socket directory: %w", err)
	}
	return nil
}

// chooseSocketDir makes a private directory for the socket: a new one for an ephemeral cluster, else always the
// same.
func (c *Cluster) chooseSocketDir() (string, error) {
	if c.opts.Ephemeral {
		removeOldSocketDir(c.dataDir)
		return makeSocketDir(c.runAs)
	}
	inside := filepath.Join(c.dataDir, runDir)
	if fits(inside) {
		return inside, c.runAs.privateDir(inside)
	}
	sum := sha256.Sum256([]byte(c.dataDir))
	name := socketPrefix + hex.EncodeToString(sum[:6])
	// TMPDIR may be another one than at the first start.
	noted := notedSocketDir(c.dataDir)
	if filepath.Base(noted) == name && fits(noted) && c.runAs.privateDir(noted) == nil {
		return noted, nil
	}
	base, err := c.runAs.tempDir()
	if err != nil {
		return "", err
	}
	if !fits(filepath.Join(base, name)) {
		base = "/tmp"
	}
	dir := filepath.Join(base, name)
	return dir, c.runAs.privateDir(dir)
}

// fits reports whether a directory can be that of a socket.
func fits(dir string) bool {
	return len(dir)+len("/"+longestSocket) <= maxSocketPath && !strings.ContainsAny(dir, oddInAddresses)
}

// privateDir makes a directory that only the account can enter. One that is there already stays if it is the
// account's; in a directory for temporary files another user may have made it.
func (a *account) privateDir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		return a.own(dir)
	}
	info, statErr := os.Lstat(dir)
	switch {
	case !errors.Is(err, os.ErrExist) || statErr != nil:
	case info.IsDir() && a.owns(info):
		if err = os.Chmod(dir, 0o700); err == nil { // #nosec G302 -- a folder is entered
			return nil
		}
	case a != nil: // root: of another account than today's, or a stranger's
		if err = os.RemoveAll(dir); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if err == nil {
			return a.own(dir)
		}
	default:
		err = errors.New("it is there and is not a directory of this user; remove it or choose another data directory")
	}
	return fmt.Errorf("create socket directory %s: %w", dir, err)
}

// notedSocketDir is the directory that the latest start has used; empty: there is none.
func notedSocketDir(dataDir string) string {
	b, err := os.ReadFile(filepath.Join(dataDir, socketFile))
	if err != nil {
		return ""
	}
	return string(b)
}

// removeOldSocketDir removes the noted socket directory of a data directory without a server, unless it lies in it.
func removeOldSocketDir(dataDir string) {
	if dir := notedSocketDir(dataDir); strings.HasPrefix(filepath.Base(dir), socketPrefix) {
		_ = os.RemoveAll(dir)
	}
}

// dropSocketDir gives the directory of the socket back. That of a cluster that is kept stays, empty: no other user
// can offer a server at its address meanwhile.
func (c *Cluster) dropSocketDir() {
	if c.opts.Ephemeral && c.socketDir != "" {
		_ = os.RemoveAll(c.socketDir)
	}
	c.socketDir = ""
}

// removeSockets removes what a killed server left in the directory of its socket. The number in its lock file may
// be that of another process by now, for which the next server would give up.
func (c *Cluster) removeSockets() {
	if c.socketDir == "" {
		return
	}
	left, err := os.ReadDir(c.socketDir)
	if err != nil {
		return // the server says what is wrong
	}
	for _, entry := range left {
		if strings.HasPrefix(entry.Name(), ".s.PGSQL.") {
			_ = os.Remove(filepath.Join(c.socketDir, entry.Name())) // the server says what is in its way
		}
	}
}

// makeSocketDir creates the private directory of a socket whose address no later start has, with a path short enough
// for one.
func makeSocketDir(runAs *account) (string, error) {
	base, err := runAs.tempDir()
	if err != nil {
		return "", err
	}
	if !fits(filepath.Join(base, socketPrefix+"0123456789")) {
		base = "/tmp"
	}
	dir, err := os.MkdirTemp(base, socketPrefix)
	if err != nil {
		return "", fmt.Errorf("create socket directory: %w", err)
	}
	if err := runAs.own(dir); err != nil {
		_ = os.RemoveAll(dir)
		return "", err
	}
	return dir, nil
}

// keptPort is the port of the first start; 0: there is none.
func (c *Cluster) keptPort() int {
	b, err := os.ReadFile(filepath.Join(c.dataDir, portFile))
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}

// keepPort keeps the port for the next start.
func (c *Cluster) keepPort() error {
	if c.opts.Ephemeral || c.keptPort() == c.port {
		return nil
	}
	if err := os.WriteFile(filepath.Join(c.dataDir, portFile), []byte(strconv.Itoa(c.port)), 0o600); err != nil {
		return fmt.Errorf("keep the port: %w", err)
	}
	return nil
}
