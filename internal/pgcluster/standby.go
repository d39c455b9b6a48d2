package pgcluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// catchUpPause is the time between two checks of a standby's progress.
const catchUpPause = 20 * time.Millisecond

// StartStandby copies a running cluster into a new data directory and starts the copy as a
// hot standby, which follows the primary over its socket with a replication slot of its own.
// It uses the settings, the programs and the TempDir of the primary unless opts overrides
// them. The data directory must be empty: a standby is made anew, not resumed.
//
// Replication is asynchronous until [Cluster.SetSynchronous] of the primary.
// The bounds and errors are those of [Start]. For tests.
func StartStandby(ctx context.Context, primary *Cluster, opts Options) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, orDuration(opts.StartTimeout, DefaultStartTimeout))
	defer cancel()
	settings := maps.Clone(primary.opts.Settings)
	if settings == nil {
		settings = map[string]string{}
	}
	maps.Copy(settings, opts.Settings) // a standby needs at least most limits of its primary
	opts.Settings = settings
	if opts.TempDir == "" {
		opts.TempDir = primary.opts.TempDir
	}
	if opts.Binaries == (Binaries{}) {
		opts.Binaries = primary.Binaries()
	}

	c := &Cluster{opts: opts, name: standbyName()}
	if err := c.prepareStandby(ctx, primary); err != nil {
		c.abandon()
		return nil, err
	}
	if err := c.launch(ctx); err != nil {
		c.abandon()
		return nil, err
	}
	// The copy includes the primary's synchronous standbys, of which this one will have none
	// when it is promoted.
	if err := c.exec(ctx, `ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	if opts.Detached {
		c.unlock()
	}
	return c, nil
}

// standbyName is unique among the standbys of a primary.
func standbyName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "standby_" + hex.EncodeToString(b[:])
}

// prepareStandby is prepare with a copy of the primary in place of initdb.
func (c *Cluster) prepareStandby(ctx context.Context, primary *Cluster) (err error) {
	if c.runAs, err = serverAccount(); err != nil {
		return err
	}
	if err := c.prepareDir(); err != nil {
		return err
	}
	if _, err := os.Lstat(c.pgdata()); err == nil {
		return fmt.Errorf("start a standby in %s: there is data already; it takes an empty directory", c.dataDir)
	}
	if c.bin, err = chooseBinaries(c.opts.Binaries, primary.pgdata()); err != nil {
		return err
	}
	if err := c.runAs.canReach(c.bin.Dir); err != nil {
		return err
	}
	c.password = primary.password // the roles are copied, too
	if err := os.WriteFile(filepath.Join(c.dataDir, passwordFile), []byte(c.password), 0o600); err != nil {
		return fmt.Errorf("keep password: %w", err)
	}
	return c.copyFrom(ctx, primary)
}

// copyFrom fills the data directory with pg_basebackup. Like initdb it works beside the
// final place.
func (c *Cluster) copyFrom(ctx context.Context, primary *Cluster) error {
	making := c.pgdata() + ".new"
	if err := os.Mkdir(making, 0o700); err != nil {
		return fmt.Errorf("create data directory: %w", err)
	}
	if err := c.runAs.own(making); err != nil {
		return err
	}
	args := []string{
		"-D", making, "-d", primary.followDSN(c.name), "--write-recovery-conf", "--wal-method=stream",
		"--checkpoint=fast", "--create-slot", "--slot=" + c.name,
	}
	args = append(args, c.makingArgs()...)
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin.Dir, "pg_basebackup"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = c.dataDir, cleanEnv(), sysProcAttr(c.runAs, false)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it cleans up after itself
	cmd.WaitDelay = 5 * time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copy the database cluster in %s: %w\n%s", primary.dataDir, err, out)
	}
	if err := os.Rename(making, c.pgdata()); err != nil {
		return fmt.Errorf("put the new data directory in place: %w", err)
	}
	return nil
}

// followDSN is the connection string of that standby to this cluster, in libpq's form.
func (c *Cluster) followDSN(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("host=%s port=%d user=%s application_name=%s", c.socketDir, c.port, Superuser, name)
}

// SetSynchronous makes every commit on this primary wait until all these standbys have
// written it to disk, and returns when they have caught up; without any, commits do not
// wait. When a standby is down, commits wait until it is back or this is called again. For
// tests.
func (c *Cluster) SetSynchronous(ctx context.Context, standbys ...*Cluster) error {
	names := make([]string, len(standbys))
	for i, s := range standbys {
		names[i] = s.name // letters, digits and _ only: it needs no quotes
	}
	wanted := ""
	if len(names) > 0 {
		wanted = fmt.Sprintf("FIRST %d (%s)", len(names), strings.Join(names, ", "))
	}
	if err := c.exec(ctx, `ALTER SYSTEM SET synchronous_standby_names = '`+wanted+`'`, `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	return c.poll(ctx, "wait for the standbys to be synchronous", func(conn *pgx.Conn) (bool, error) {
		const sql = `SELECT count(*) FROM pg_stat_replication WHERE application_name = ANY ($1) AND state = 'streaming' AND sync_state = 'sync'`
		var n int
		err := conn.QueryRow(ctx, sql, names).Scan(&n)
		return n == len(names), err
	})
}

// Promote ends the recovery of a standby: it returns when the server accepts writes. Its
// former primary must be dead by then and stay so, or both accept writes. ctx bounds it. For
// tests.
func (c *Cluster) Promote(ctx context.Context) error {
	// Without waiting there: the server's own limit is in seconds.
	if err := c.exec(ctx, `SELECT pg_promote(false)`); err != nil {
		return err
	}
	return c.poll(ctx, "wait for the promotion", func(conn *pgx.Conn) (bool, error) {
		var recovering bool
		err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&recovering)
		return !recovering, err
	})
}

// exec runs statements one by one over the socket, each a transaction.
func (c *Cluster) exec(ctx context.Context, statements ...string) error {
	return c.connected(ctx, func(conn *pgx.Conn) error {
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		return nil
	})
}

// poll repeats ask until it returns true or an error, or ctx ends.
func (c *Cluster) poll(ctx context.Context, doing string, ask func(conn *pgx.Conn) (bool, error)) error {
	return c.connected(ctx, func(conn *pgx.Conn) error {
		for {
			yes, err := ask(conn)
			if err != nil {
				return fmt.Errorf("%s: %w", doing, err)
			}
			if yes {
				return nil
			}
			if err := lifecycle.Pause(ctx, catchUpPause); err != nil {
				return fmt.Errorf("%s: %w", doing, err)
			}
		}
	})
}

func (c *Cluster) connected(ctx context.Context, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, c.SocketDSN(Superuser))
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL in %s: %w", c.dataDir, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return f(conn)
}

// FailoverDSN is the connection string of a database on several clusters, over loopback: it
// leads to the first that accepts writes. All must have the same password, as a primary and
// its standbys have.
func FailoverDSN(database string, clusters ...*Cluster) string {
	hosts := make([]string, len(clusters))
	password := ""
	for i, c := range clusters {
		hosts[i], password = "127.0.0.1:"+itoa(c.Port()), c.password
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(Superuser, password),
		Host:     strings.Join(hosts, ","),
		Path:     "/" + database,
		RawQuery: "sslmode=disable&target_session_attrs=read-write",
	}
	return u.String()
}
