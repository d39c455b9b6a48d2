package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
)

// migrateTimeout bounds a migration unless --timeout says otherwise: one that fills a large
// table or builds an index takes its time.
const migrateTimeout = 10 * time.Minute

func (a *app) migrate() command {
	up := &migrateUp{app: a}
	return command{
		use: "migrate", short: "Plan, apply, verify or roll back migrations",
		long: `Changes the database schema, while daemons work. The database is that of
--database-url, else of DATABASE_URL, else common.database.url of the
configuration (TASKER_CONFIG_PATH, TASKER_CONFIG_ROOT or --config-file).
Connect directly, not through a pooler in transaction mode: migrations hold an
advisory lock for the session. See docs/operate/upgrading.md.`,
		commands: []command{
			a.migration(command{use: "plan", short: "List what up would apply, and what keeps it from that"}, a.migratePlan),
			a.migration(command{use: "up", short: "Apply the pending migrations",
				long: `Applies the pending migrations. Daemons go on working: where a statement would
have to wait for a lock for more than half a second, it lets the daemons pass
and is tried again, for some minutes. An interrupted migration is continued by
the next up.`,
				flags: up.flags()}, up.run),
			a.migration(command{use: "down", short: "Roll back the newest migration, with the data it holds", long: `Rolls back the newest migration, with the data it holds. Rolling back the first
one (100) drops the schema tasker, with all tasks. Older programs work with the
newer schema, so going back to them needs no down.`}, a.migrateDown).
				confirmed("yes, the data may go", "migrate down rolls back the newest migration and destroys the data in what it drops",
					"confirm with --yes"),
			a.migration(command{use: "status", short: "List the migrations and whether they have been applied"}, a.migrateStatus),
			a.migration(command{use: "verify", short: "Compare the schema of the database with that of this program",
				long: `Lists what the schema of the database lacks or has besides what the migrations
make, invalid indexes, and partitions without an index of their table. Ends with
exit code 1 if there is any.`}, a.migrateVerify),
			a.migrateGrants(),
		},
	}
}

// migrateGrants prints what the owner of the schema executes for another role.
func (a *app) migrateGrants() command {
	return command{use: "grants ROLE", short: "Print the statements that let another role run daemons",
		long: `Prints the statements after which daemons work as a role that owns nothing. The
role that migrates executes them once in the database, after migrate up; later
migrations by the same role extend them by themselves. It asks no database. See
docs/operate/operations.md.`,
		example: `  tasker-ctl migrate grants app | psql "$DATABASE_URL"`,
		local: func(_ context.Context, args []string) error {
			statements, err := store.Grants(args[0])
			if err != nil {
				return usageError{err}
			}
			return a.emit(map[string]any{"statements": statements}, func() {
				for _, s := range statements {
					a.printf("%s;\n", s)
				}
			})
		}}
}

// migration completes the description of a command that works on the schema of
// a database, under a deadline.
func (a *app) migration(d command, run func(context.Context, *store.Migrator) error) command {
	o := &databaseOptions{app: a}
	d.flags = all(o.flags(), d.flags)
	d.local = func(ctx context.Context, _ []string) error {
		return o.on(ctx, migrateTimeout, false, func(ctx context.Context, url string) error {
			m, err := store.NewMigrator(url)
			if err != nil {
				return usageError{err}
			}
			return run(ctx, m)
		})
	}
	return d
}

// migrateUp applies what is pending.
type migrateUp struct {
	app   *app
	wait  time.Duration
	force bool
}

func (u *migrateUp) flags() flags {
	return all(
		opt(&u.wait, "wait", "wait up to this `duration` for a database that does not answer yet"),
		opt(&u.force, "force", "also remove what daemons that run now still need"),
	)
}

func (u *migrateUp) run(ctx context.Context, m *store.Migrator) error {
	up := m.Up
	if u.force {
		up = m.UpForced
	}
	applied, err := up(ctx)
	for deadline := time.Now().Add(u.wait); errors.Is(err, store.ErrUnavailable) && time.Now().Before(deadline); applied, err = up(ctx) {
		if err := lifecycle.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if applied == nil {
		applied = []int64{}
	}
	return u.app.emit(map[string]any{"applied": applied}, func() {
		for _, v := range applied {
			u.app.printf("applied migration %d\n", v)
		}
		if len(applied) == 0 {
			u.app.printf("the schema is up to date\n")
		}
	})
}

func (a *app) migrateDown(ctx context.Context, m *store.Migrator) error {
	version, err := m.Down(ctx)
	if err != nil {
		return err
	}
	return a.emit(map[string]any{"taken_back": version}, func() { a.printf("rolled back migration %d\n", version) })
}

// migrationRow is one line of `migrate status`.
type migrationRow struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at"`
}

func (a *app) migrateStatus(ctx context.Context, m *store.Migrator) error {
	list, err := m.Status(ctx)
	if err != nil {
		return err
	}
	rows := make([]migrationRow, len(list))
	t := a.newTable("VERSION", "NAME", "APPLIED")
	for i, s := range list {
		rows[i] = migrationRow{Version: s.Version, Name: s.Name, Applied: s.Applied}
		applied := cell{"pending", yellow}
		if s.Applied {
			at := s.AppliedAt.UTC()
			rows[i].AppliedAt = &at
			applied = cell{at.Format(time.RFC3339), plain}
		}
		t.row(s.Version, s.Name, applied)
	}
	return a.emit(rows, func() { t.write(a.stdout) })
}

// plannedMigration is one line of `migrate plan`. Kind is expand, or contract with the oldest
// version whose programs go on working.
type plannedMigration struct {
	Version int64    `json:"version"`
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Oldest  int64    `json:"oldest,omitempty"`
	Online  []string `json:"online,omitempty"`
	Summary string   `json:"summary"`
}

func (a *app) migratePlan(ctx context.Context, m *store.Migrator) error {
	pending, refusal, err := m.Plan(ctx)
	if err != nil {
		return err
	}
	plan := struct {
		Pending []plannedMigration `json:"pending"`
		Refused string             `json:"refused,omitempty"`
	}{Pending: []plannedMigration{}}
	for _, s := range pending {
		kind := "expand"
		if s.Oldest > 0 {
			kind = "contract"
		}
		plan.Pending = append(plan.Pending, plannedMigration{s.Version, s.Name, kind, s.Oldest, s.Online, s.Summary})
	}
	if refusal != nil {
		plan.Refused = refusal.Error()
	}
	return a.emit(plan, func() {
		if len(pending) == 0 {
			a.printf("the schema is up to date\n")
		}
		for _, p := range plan.Pending {
			a.printf("%d %s (%s)\n", p.Version, p.Name, p.Kind)
			if p.Summary != "" {
				a.printf("    %s\n", p.Summary)
			}
			if p.Oldest > 0 {
				a.printf("    ends programs of schema versions before %d\n", p.Oldest)
			}
			if len(p.Online) > 0 {
				a.printf("    then, without a lock for long: %s\n", strings.Join(p.Online, "; "))
			}
		}
		if plan.Refused != "" {
			a.printf("up would refuse this: %s\n", plan.Refused)
		}
	})
}

func (a *app) migrateVerify(ctx context.Context, m *store.Migrator) error {
	differences, err := m.Verify(ctx)
	if err != nil {
		return err
	}
	wrong := failure(fmt.Sprintf("verify the schema: %d differences", len(differences)))
	return a.verdict(map[string]any{"differences": append([]string{}, differences...)}, len(differences) == 0, wrong, func() {
		for _, d := range differences {
			a.printf("%s\n", d)
		}
		if len(differences) == 0 {
			a.printf("the schema is that of version %d\n", store.SchemaVersion)
		}
	})
}
