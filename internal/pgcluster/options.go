package pgcluster

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Superuser is the database role that owns a cluster made here.
const Superuser = "postgres"

// DefaultStartTimeout bounds Start when neither the context nor the options do.
const DefaultStartTimeout = 60 * time.Second

// DefaultStopTimeout bounds Stop when its context has no deadline.
const DefaultStopTimeout = 30 * time.Second

// Options describe a cluster. The zero value is not usable: give a DataDir, or set
// Ephemeral.
type Options struct {
	// DataDir is the directory of the cluster; it is created when missing and
	// kept between runs. See the package comment for its layout.
	DataDir string
	// Ephemeral removes the cluster at Stop. DataDir must then be empty (a temporary
	// directory is made) or not exist yet.
	Ephemeral bool
	// TempDir is where the directory of an ephemeral cluster is made; empty means
	// that of [TempDir].
	TempDir string
	// Port is the loopback port; 0 picks a free one, at every start of an ephemeral cluster. Any other keeps the
	// one of its first start, which its socket is named after: when another program has taken it since, the server
	// listens on its socket alone, or on Windows on another port.
	Port int
	// Settings are server settings that override the defaults of this package, for example
	// {"fsync": "off"}. They are given on the command line.
	Settings map[string]string
	// Detached lets the server outlive this process: it is no child, and only Stop after
	// Attach ends it.
	Detached bool
	// WALDir is a directory for the WAL, such as on a volume of its own; empty leaves it in
	// the data directory. The path is absolute, the directory empty or missing, and it is
	// not removed with the cluster. It applies when the data directory is made.
	WALDir string
	// NoSync skips flushing a newly created data directory to disk, which saves time where
	// a crash of the machine may destroy it. Implied by Ephemeral.
	NoSync bool
	// Fill makes the content of a new data directory, dir, instead of initdb, and puts the WAL
	// into WALDir. The superuser's password there is Password. There must be no data yet.
	Fill     func(ctx context.Context, dir string) error
	Password string
	// StartTimeout bounds creating and starting together; 0 means
	// DefaultStartTimeout. An earlier deadline of the context wins.
	StartTimeout time.Duration
	// Binaries to use; the zero value means those of [Find], for the version of the data
	// directory.
	Binaries Binaries
	// Tell gets a sentence before each slow action, such as fetching PostgreSQL; it may be nil.
	Tell func(string)
}

// defaultSettings suit Tasker: logical decoding for the WAL signal, and room
// for many replicas on one database.
func defaultSettings() map[string]string {
	return map[string]string{
		"wal_level":               "logical",
		"max_replication_slots":   "20",
		"max_wal_senders":         "20",
		"max_connections":         "200",
		"listen_addresses":        "127.0.0.1",
		"unix_socket_permissions": "0700",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"log_line_prefix":         "%m [%p] ",
	}
}

// serverArgs are the arguments of the server program, in a fixed order so that
// logs and process lists of two runs can be compared.
func (c *Cluster) serverArgs() []string {
	settings := defaultSettings()
	maps.Copy(settings, c.opts.Settings)
	args := []string{
		"-D", c.pgdata(),
		"-p", strconv.Itoa(c.port),
		"-c", "unix_socket_directories=" + c.socketDir,
	}
	if c.noTCP {
		settings["listen_addresses"] = ""
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}
