//go:build unix

package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/pgcluster"
)

// catchUpPause is the time between two checks of a standby's progress.
const catchUpPause = 20 * time.Millisecond

// Standby is a hot standby: a cluster that follows another one.
type Standby struct {
	*pgcluster.Cluster
	name string // for its primary
}

// StartStandby copies a running cluster into a new data directory and starts the copy as a
// hot standby, which follows the primary over its socket with a replication slot of its own.
// It uses the settings, the programs and the TempDir of the primary unless opts overrides
// them. The data directory must be empty: a standby is made anew, not resumed.
//
// Replication is asynchronous until [SetSynchronous]. The bounds and errors are those of
// [pgcluster.Start].
func StartStandby(ctx context.Context, primary *pgcluster.Cluster, opts pgcluster.Options) (*Standby, error) {
	own := opts.Settings
	opts.Settings = maps.Clone(primary.Options().Settings) // a standby needs at least most limits of its primary
	if opts.Settings == nil {
		opts.Settings = map[string]string{}
	}
	maps.Copy(opts.Settings, own)
	if opts.TempDir == "" {
		opts.TempDir = primary.Options().TempDir
	}
	if opts.Binaries == (pgcluster.Binaries{}) {
		opts.Binaries = primary.Binaries()
	}
	from, err := url.Parse(primary.SocketDSN(pgcluster.Superuser)) // copying slots needs a database
	if err != nil {
		return nil, fmt.Errorf("read the primary's address: %w", err)
	}
	with, err := pgx.ParseConfig(primary.DSN(pgcluster.Superuser))
	if err != nil {
		return nil, fmt.Errorf("read the primary's password: %w", err)
	}
	opts.Password = with.Password // the roles are copied, too
	s := &Standby{name: "standby_" + strings.ToLower(rand.Text()[:8])}
	follow := from.Query()
	follow.Set("application_name", s.name)
	from.RawQuery = follow.Encode()
	opts.Fill = func(ctx context.Context, dir string) error {
		return s.copy(ctx, primary, dir, opts.WALDir, from.String())
	}
	if s.Cluster, err = pgcluster.Start(ctx, opts); err != nil {
		return nil, err
	}
	// The copy includes the primary's synchronous standbys, of which this one will have none
	// when it is promoted.
	if err := execute(ctx, s.Cluster, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`); err != nil {
		return nil, errors.Join(err, s.Stop(ctx))
	}
	return s, nil
}

// copy does what pg_basebackup does, which fetched builds of PostgreSQL lack. The slot is there
// before the backup begins, so the primary keeps the WAL that the standby needs.
func (s *Standby) copy(ctx context.Context, primary *pgcluster.Cluster, dir, walDir, from string) error {
	return connected(ctx, primary, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `SELECT pg_create_physical_replication_slot($1, true)`, s.name); err != nil {
			return fmt.Errorf("create a slot: %w", err)
		}
		var source, label string
		var version int
		if err := conn.QueryRow(ctx, `SELECT current_setting('data_directory'), current_setting('server_version_num')::int`).Scan(&source, &version); err != nil {
			return fmt.Errorf("find the data of the primary: %w", err)
		}
		begin, end := `SELECT pg_backup_start($1, true)`, `SELECT labelfile FROM pg_backup_stop(false)`
		if version < 150000 {
			begin, end = `SELECT pg_start_backup($1, true, false)`, `SELECT labelfile FROM pg_stop_backup(false, false)`
		}
		if _, err := conn.Exec(ctx, begin, s.name); err != nil {
			return fmt.Errorf("begin the backup: %w", err)
		}
		wal := filepath.Join(dir, "pg_wal")
		if walDir != "" {
			if err := os.Symlink(walDir, wal); err != nil {
				return err
			}
			wal = walDir
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(wal, "archive_status"), 0o700), copyData(source, dir)); err != nil {
			return fmt.Errorf("copy the data of the primary: %w", err)
		}
		if err := conn.QueryRow(ctx, end).Scan(&label); err != nil {
			return fmt.Errorf("end the backup: %w", err)
		}
		settings, err := os.ReadFile(filepath.Join(dir, autoConf)) // #nosec G304 -- of the copy
		if err != nil {
			return err
		}
		quoted := strings.ReplaceAll(from, "'", "''")
		for name, content := range map[string]string{"backup_label": label, "standby.signal": "",
			autoConf: string(settings) + fmt.Sprintf("primary_conninfo = '%s'\nprimary_slot_name = '%s'\n", quoted, s.name)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				return err
			}
		}
		return errors.Join(sameOwner(dir, dir), sameOwner(wal, dir))
	})
}

const autoConf = "postgresql.auto.conf"

// notCopied are files of a running server, and directories whose content is useless to a
// copy.
var notCopied = []string{"postmaster.pid", "postmaster.opts", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_serial", "pg_snapshots",
	"pg_stat_tmp", "pg_subtrans"}

// copyData copies a data directory; files may change and vanish meanwhile.
func copyData(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		name, _ := filepath.Rel(from, path) // it is below
		target, top := filepath.Join(to, name), strings.Split(name, string(filepath.Separator))
		switch skip := slices.Contains(notCopied, top[0]); {
		case err != nil || name == ".":
			return err
		case top[0] == "pg_wal" || skip && len(top) > 1 || skip && !entry.IsDir():
			return nil
		case entry.IsDir():
			return os.Mkdir(target, 0o700)
		}
		content, err := os.ReadFile(path) // #nosec G122 G304 -- of a server of a test
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = os.WriteFile(target, content, 0o600)
		}
		return err
	})
}

// sameOwner gives what is in a directory to the owner of another, who runs the server.
func sameOwner(dir, as string) error {
	info, err := os.Stat(as)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Getuid() != 0 {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(owner.Uid), int(owner.Gid))) // #nosec G122 -- of a test
	})
}

// Standby starts a standby of this server for a test, at whose end it stops.
func (s *Server) Standby(t testing.TB) *Standby {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	standby, err := StartStandby(ctx, s.Cluster, pgcluster.Options{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := errors.Join(standby.StopImmediate(ctx), standby.Stop(ctx)); err != nil {
			t.Error(err)
		}
	})
	return standby
}

// SetSynchronous makes every commit on the primary wait until all these standbys have
// written it to disk, and returns when they have caught up; without any, commits do not
// wait. When a standby is down, commits wait until it is back or this is called again.
func SetSynchronous(ctx context.Context, primary *pgcluster.Cluster, standbys ...*Standby) error {
	names := make([]string, len(standbys))
	for i, s := range standbys {
		names[i] = s.name // letters, digits and _ only: it needs no quotes
	}
	wanted := ""
	if len(names) > 0 {
		wanted = fmt.Sprintf("FIRST %d (%s)", len(names), strings.Join(names, ", "))
	}
	if err := execute(ctx, primary, `ALTER SYSTEM SET synchronous_standby_names = '`+wanted+`'`, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	return until(ctx, primary, "wait for the standbys to be synchronous", func(conn *pgx.Conn) (bool, error) {
		const sql = `SELECT count(*) FROM pg_stat_replication WHERE application_name = ANY ($1) AND state = 'streaming' AND sync_state = 'sync'`
		var n int
		err := conn.QueryRow(ctx, sql, names).Scan(&n)
		return n == len(names), err
	})
}

// Promote ends the recovery: it returns when the server accepts writes. The former primary
// must be dead by then and stay so, or both accept writes. ctx bounds it.
func (s *Standby) Promote(ctx context.Context) error {
	// Without waiting there: the server's own limit is in seconds.
	if err := execute(ctx, s.Cluster, `SELECT pg_promote(false)`); err != nil {
		return err
	}
	return until(ctx, s.Cluster, "wait for the promotion", func(conn *pgx.Conn) (bool, error) {
		var recovering bool
		err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&recovering)
		return !recovering, err
	})
}

// execute runs statements one by one over the socket, each a transaction.
func execute(ctx context.Context, c *pgcluster.Cluster, statements ...string) error {
	return connected(ctx, c, func(conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// until repeats look until it returns true or an error, or ctx ends.
func until(ctx context.Context, c *pgcluster.Cluster, doing string, look func(conn *pgx.Conn) (bool, error)) error {
	return connected(ctx, c, func(conn *pgx.Conn) error {
		for {
			yes, err := look(conn)
			if err == nil && !yes {
				err = lifecycle.Pause(ctx, catchUpPause)
			}
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", doing, err)
			case yes:
				return nil
			}
		}
	})
}

func connected(ctx context.Context, c *pgcluster.Cluster, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, c.SocketDSN(pgcluster.Superuser))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL in %s: %w", c.DataDir(), err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return f(conn)
}

// FailoverDSN is the connection string of a database on several clusters, over loopback: it
// leads to the first that accepts writes. All must have the same password, as a primary and
// its standbys have.
func FailoverDSN(database string, clusters ...*pgcluster.Cluster) string {
	hosts := make([]string, len(clusters))
	for i, c := range clusters {
		hosts[i] = "127.0.0.1:" + strconv.Itoa(c.Port())
	}
	return strings.Replace(clusters[0].DSN(database), hosts[0], strings.Join(hosts, ","), 1) + "&target_session_attrs=read-write"
}
