package peers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Peer is another queue. Its jobs only multiply a number.
//
// A Peer serves one database after the other. Its methods may be called from several
// processes concurrently, but only one at a time may submit.
type Peer interface {
	// Name identifies the peer in tables and for ByName.
	Name() string
	// Version is the version of its module, for example "v0.51.0"; "unknown" if the
	// program does not contain it, as in tests.
	Version() string
	// Settings describes its configuration in one line.
	Settings() string
	// Prepare creates its tables in an empty database.
	Prepare(ctx context.Context, dsn string) error
	// Submit adds n jobs in bulk, as fast as the peer's interface allows. It may be
	// called repeatedly, also while workers run.
	Submit(ctx context.Context, dsn string, n int) error
	// Work runs workers until ctx ends, lets them finish their jobs and returns nil. It
	// should have its own process.
	Work(ctx context.Context, dsn string, pace Pace) error
	// Finished returns how many jobs are complete. It never counts too many, and counts
	// all of them once the workers are idle. On one connection a call costs as much as
	// there was progress since the last one, regardless of the number of rows, so it may
	// be called several times a second. Not for concurrent use.
	Finished(ctx context.Context, db *pgx.Conn) (int64, error)
	// Took is the time from the first start to the last end of all jobs. It
	// may read the whole table.
	Took(ctx context.Context, db *pgx.Conn) (time.Duration, error)
	// Latency submits n jobs, each to an idle queue, and returns for each the time from
	// its submission to its start. Workers must be running (Work). Some earlier jobs warm
	// caches up and are not counted.
	Latency(ctx context.Context, dsn string, n int) ([]time.Duration, error)
}

// Pace is how much work a job is. Zero is none, by as many jobs at once as the
// peer's settings say.
type Pace struct {
	Takes   time.Duration // of a job, waiting
	Permits int           // jobs at once
}

// All returns every peer, new, with the tuned form of a queue before the one
// with its defaults.
func All() []Peer {
	return []Peer{newRiver("river-tuned", tunedRiver()), newRiver("river", defaultRiver())}
}

// ByName returns a new peer of that name. The error lists the known names.
func ByName(name string) (Peer, error) {
	var names []string
	for _, p := range All() {
		if p.Name() == name {
			return p, nil
		}
		names = append(names, p.Name())
	}
	return nil, fmt.Errorf("invalid peer %q: want one of %s", name, strings.Join(names, ", "))
}
