// Package rig holds what is measured: PostgreSQL clusters of one run, databases in them,
// the daemons as processes, and the counters of the operating system and the database.
package rig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/pgcluster"
	"github.com/tasker-go/tasker/test/fleet"
)

// Rig is the environment of one run. It is not safe for concurrent use.
type Rig struct {
	dir      string
	stock    *Cluster
	observed *Cluster
	made     int // databases
	access   access
	// Secure protects every fleet that does not say otherwise: with tokens and TLS.
	Secure bool
}

// Cluster is one PostgreSQL server.
type Cluster struct {
	*pgcluster.Cluster
	Counts bool // statements are counted (pg_stat_statements)
}

// New builds the programs of the module in root and of the benchmark in bench,
// and starts a server with stock settings.
func New(ctx context.Context, root, bench string) (*Rig, error) {
	dir, err := os.MkdirTemp("", "tasker-bench-*")
	if err != nil {
		return nil, fmt.Errorf("make a work directory: %w", err)
	}
	r := &Rig{dir: dir}
	if r.access, err = newAccess(dir); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if err := r.build(ctx, root, bench); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if r.stock, err = start(ctx, false); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) build(ctx context.Context, root, bench string) error {
	for _, b := range []struct{ dir, pkg string }{{root, "./cmd/orchestrator"}, {root, "./cmd/tasker-ctl"}, {bench, "./worker"}} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", r.dir+string(filepath.Separator), b.pkg)
		cmd.Dir = b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", b.pkg, err, out)
		}
	}
	return nil
}

func start(ctx context.Context, counts bool) (*Cluster, error) {
	settings := map[string]string{}
	if counts {
		settings["shared_preload_libraries"] = "pg_stat_statements"
	}
	c, err := pgcluster.Start(ctx, pgcluster.Options{Ephemeral: true, Settings: settings})
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return &Cluster{Cluster: c, Counts: counts}, nil
}

// Stock is the server with stock settings.
func (r *Rig) Stock() *Cluster { return r.stock }

// Observed is a second server that counts statements, started on first use.
func (r *Rig) Observed(ctx context.Context) (*Cluster, error) {
	if r.observed == nil {
		c, err := start(ctx, true)
		if err != nil {
			return nil, err
		}
		r.observed = c
	}
	return r.observed, nil
}

// Close stops the servers and removes everything.
func (r *Rig) Close() error {
	var errs []error
	for _, c := range []*Cluster{r.stock, r.observed} {
		if c != nil {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			errs = append(errs, c.Stop(ctx))
			cancel()
		}
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// Database is one database of a cluster.
type Database struct {
	Cluster *Cluster
	Name    string
	DSN     string
}

// Database makes an empty database, after a checkpoint, so that no checkpoint is due
// because of earlier work.
func (r *Rig) Database(ctx context.Context, c *Cluster) (*Database, error) {
	r.made++
	d := &Database{Cluster: c, Name: fmt.Sprintf("bench_%d", r.made)}
	if err := c.CreateDatabase(ctx, d.Name); err != nil {
		return nil, fmt.Errorf("create database %s: %w", d.Name, err)
	}
	d.DSN = c.DSN(d.Name)
	if err := d.Exec(ctx, `checkpoint`); err != nil {
		return nil, err
	}
	if c.Counts {
		return d, d.Exec(ctx, `create extension pg_stat_statements`)
	}
	return d, nil
}

// Drop drops the database, so that it cannot disturb the next measurement.
func (d *Database) Drop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	admin := Database{Cluster: d.Cluster, DSN: d.Cluster.DSN("postgres")}
	return admin.Exec(ctx, `drop database `+pgx.Identifier{d.Name}.Sanitize()+` with (force)`)
}

// Connect opens a connection; the caller closes it.
func (d *Database) Connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, d.DSN)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", d.Name, err)
	}
	return conn, nil
}

// Exec runs statements on their own connection.
func (d *Database) Exec(ctx context.Context, statements ...string) error {
	conn, err := d.Connect(ctx)
	if err != nil {
		return err
	}
	defer CloseConn(conn)
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return fmt.Errorf("execute %q: %w", shortened(s), err)
		}
	}
	return nil
}

func shortened(statement string) string {
	s := strings.Join(strings.Fields(statement), " ")
	return s[:min(len(s), 60)]
}

// CloseConn closes a connection within a bound.
func CloseConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx) // its error does not matter
}

// FleetOptions say which daemons to run; everything else is as shipped.
type FleetOptions struct {
	Mode, Source string // "" leaves the default
	Programs     string // folder of those of a former version; "": those of this one
	WorkerEnv    []string
	WorkerConfig string // TOML
	// OrchestratorConfig is TOML too. Protection is that of the daemons' APIs.
	OrchestratorConfig string
	Protection         Protection
	// Role makes each kind of daemon log in as its own role, so that their statements can
	// be distinguished.
	Role bool
}

// Fleet is the daemons on one database.
type Fleet struct {
	*Database
	Orchestrators, Workers []*fleet.Process

	o      FleetOptions
	dir    string
	access access
}

// Fleet prepares a fleet without daemons on a database.
func (r *Rig) Fleet(d *Database, o FleetOptions) *Fleet {
	if o.Protection == Default {
		o.Protection = Open
		if r.Secure {
			o.Protection = TokenAndTLS
		}
	}
	return &Fleet{Database: d, o: o, dir: r.dir, access: r.access}
}

// Start runs more daemons and waits until they are ready.
func (f *Fleet) Start(ctx context.Context, kind fleet.Kind, n int) error {
	var started []*fleet.Process
	for range n {
		p, err := f.start(ctx, kind)
		if err != nil {
			return err
		}
		started = append(started, p)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, p := range started {
		if err := p.WaitReady(ctx); err != nil {
			return fmt.Errorf("start %s: %w", p.Name, err)
		}
	}
	return nil
}

func (f *Fleet) start(ctx context.Context, kind fleet.Kind) (*fleet.Process, error) {
	list, env, config := &f.Orchestrators, []string{"TASKER_ENV=development"}, "[common.task_templates]\nsearch_paths = []\n"
	if kind == fleet.Worker {
		list, env, config = &f.Workers, append(env, f.o.WorkerEnv...), config+f.o.WorkerConfig
	} else {
		config += f.o.OrchestratorConfig
	}
	dsn := f.DSN
	if f.o.Role {
		var err error
		if dsn, err = f.roleDSN(ctx, kind); err != nil {
			return nil, err
		}
	}
	p, err := fleet.Start(fleet.Options{
		Kind: kind, BinDir: cmp.Or(f.o.Programs, f.dir), WorkDir: filepath.Join(f.dir, f.Database.Name), Name: fmt.Sprintf("%s-%d", kind, len(*list)),
		DatabaseURL: dsn, Mode: f.o.Mode, EventSource: f.o.Source, Env: env, Config: config + f.access.toml(kind, f.o.Protection),
		Web: f.access.web(f.o.Protection), TLS: f.o.Protection == TokenAndTLS})
	if err != nil {
		return nil, fmt.Errorf("start the %s: %w", kind, err)
	}
	*list = append(*list, p)
	return p, nil
}

// rolePassword need not be secret: the server lives as long as the run.
const rolePassword = "bench"

func (f *Fleet) roleDSN(ctx context.Context, kind fleet.Kind) (string, error) {
	role := RoleOf(f.Database, kind)
	if err := f.Exec(ctx, fmt.Sprintf(`create role %s superuser login password '%s'`, role, rolePassword)); err != nil {
		return "", err
	}
	return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", role, rolePassword, f.Cluster.Port(), f.Database.Name), nil
}

// RoleOf is the role that a daemon of a fleet logs in as.
func RoleOf(d *Database, kind fleet.Kind) string { return d.Name + "_" + string(kind) }

// Stop ends the daemons, workers first.
func (f *Fleet) Stop() {
	for _, p := range append(f.Workers, f.Orchestrators...) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		_ = p.Stop(ctx) // other tests check its end
		cancel()
	}
	f.Workers, f.Orchestrators = nil, nil
}

// Close ends the daemons and drops the database.
func (f *Fleet) Close() {
	f.Stop()
	_ = f.Drop() // the server is removed after the run
}
