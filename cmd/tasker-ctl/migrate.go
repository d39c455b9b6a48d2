package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/store"
)

// migrateTimeout bounds a migration unless --timeout says otherwise: one that
// rewrites a large table takes its time.
const migrateTimeout = 10 * time.Minute

// migrateOptions say which database is changed.
type migrateOptions struct{ databaseOptions }

func newMigrateCommand(a *app) *cobra.Command {
	o := &migrateOptions{databaseOptions{app: a}}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database schema up to date, or take it back",
		Long: `Changes the database schema. The database is that of --database-url, else of
DATABASE_URL, else common.database.url of the configuration (TASKER_CONFIG_PATH,
TASKER_CONFIG_ROOT or --config-file). Connect directly, not through a pooler in
transaction mode: migrations hold an advisory lock for the session.`,
	}
	cmd.AddCommand(o.up(), o.down(), o.status())
	for _, sub := range cmd.Commands() {
		o.flags(sub)
	}
	return cmd
}

func (o *migrateOptions) up() *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Apply the migrations that are missing",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd.Context(), func(ctx context.Context, m *store.Migrator) error {
				applied, err := m.Up(ctx)
				if err != nil {
					return err
				}
				if applied == nil {
					applied = []int64{}
				}
				return o.app.emit(map[string]any{"applied": applied}, func() {
					for _, v := range applied {
						o.app.printf("applied migration %d\n", v)
					}
					if len(applied) == 0 {
						o.app.printf("the schema is up to date\n")
					}
				})
			})
		},
	}
}

func (o *migrateOptions) down() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Take back the newest migration, with the data it holds",
		Long: `Takes back the newest migration, with the data it holds. The way back of the
first one (100) drops the schema tasker, with all tasks.`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !yes {
				return hinted{usagef("migrate down takes back the newest migration and destroys the data in what it drops"), "confirm with --yes"}
			}
			return o.with(cmd.Context(), func(ctx context.Context, m *store.Migrator) error {
				version, err := m.Down(ctx)
				if err != nil {
					return err
				}
				return o.app.emit(map[string]any{"taken_back": version}, func() {
					o.app.printf("took back migration %d\n", version)
				})
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, the data may go")
	return cmd
}

// migrationRow is one line of `migrate status`.
type migrationRow struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at"`
}

func (o *migrateOptions) status() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "List the migrations and whether they have been applied",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd.Context(), func(ctx context.Context, m *store.Migrator) error {
				list, err := m.Status(ctx)
				if err != nil {
					return err
				}
				return o.app.showMigrations(list)
			})
		},
	}
}

func (a *app) showMigrations(list []store.MigrationStatus) error {
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

// with opens a migrator, under a deadline.
func (o *migrateOptions) with(ctx context.Context, fn func(context.Context, *store.Migrator) error) error {
	url, err := o.url()
	if err != nil {
		return err
	}
	o.app.logf(1, "database %s", config.DSN(url))
	m, err := store.NewMigrator(url)
	if err != nil {
		return usageError{err}
	}
	limit := migrateTimeout
	if o.app.global.timeout > 0 {
		limit = o.app.global.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx, m)
}
