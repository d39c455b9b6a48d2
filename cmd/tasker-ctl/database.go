package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/internal/signal/wal"
)

// databaseOptions say which database a command works on itself, without asking
// a daemon.
type databaseOptions struct {
	app         *app
	databaseURL string
	configPath  string
}

func (o *databaseOptions) flags() flags {
	return all(
		opt(&o.databaseURL, "database-url", "`URL` of the database (default $DATABASE_URL)"),
		opt(&o.configPath, "config-file", "daemon configuration `file` to take the database from"),
	)
}

// within bounds the work on a database, unless --timeout says otherwise.
func (a *app) within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if a.global.timeout > 0 {
		limit = a.global.timeout
	}
	return context.WithTimeout(ctx, limit)
}

// url finds the database: the one that the command line or the environment names, or
// that of the configuration, whose built-in default does not count: only a database
// that the operator names is changed. Direct is for what no pooler can do: of a
// configuration it takes the connection of the listeners.
func (o *databaseOptions) url(direct bool) (string, error) {
	if url := cmp.Or(o.databaseURL, o.app.getenv("DATABASE_URL")); url != "" {
		return url, nil
	}
	loaded, err := config.Load(config.Options{Context: config.ContextCommon, Path: o.configPath, LookupEnv: o.app.env})
	if err != nil {
		return "", fmt.Errorf("find the database: %w", err)
	}
	if s, ok := loaded.Setting("common.database.url"); !ok || s.Default {
		return "", hinted{usagef("no database is named"), "give --database-url, DATABASE_URL or a configuration"}
	}
	if direct {
		return loaded.Common.Database.ListenerDSN().Reveal(), nil
	}
	return loaded.Common.Database.URL.Reveal(), nil
}

// on runs work with the URL of the database, under a deadline unless --timeout says otherwise.
func (o *databaseOptions) on(ctx context.Context, limit time.Duration, direct bool, work func(ctx context.Context, url string) error) error {
	url, err := o.url(direct)
	if err != nil {
		return err
	}
	o.app.logf(1, "database %s", config.DSN(url))
	ctx, cancel := o.app.within(ctx, limit)
	defer cancel()
	return work(ctx, url)
}

// dropSlotTimeout bounds dropping a slot unless --timeout says otherwise.
const dropSlotTimeout = 30 * time.Second

func (a *app) systemDropSlot() command {
	o := &databaseOptions{app: a}
	return command{
		use: "drop-slot NAME", short: "Drop a replication slot that has no reader any more",
		long: `Drops a persistent replication slot (common.signals.wal.slot), so that the
server may recycle the WAL it keeps. The database is that of --database-url,
else of DATABASE_URL, else of the configuration (its listener_url first); it
must be the one that the slot was made in. A slot that is being read is not
dropped: stop its reader first. The signals in it are lost; the next listener
checks all its work anyway.`,
		example: "  tasker-ctl system drop-slot tasker_worker_7 --yes",
		flags:   o.flags(),
		local:   func(ctx context.Context, args []string) error { return o.dropSlot(ctx, args[0]) },
	}.confirmed("yes, the slot is not needed any more", "system drop-slot discards the signals in the slot", "confirm with --yes")
}

func (o *databaseOptions) dropSlot(ctx context.Context, slot string) error {
	if !wal.ValidSlot(slot) {
		return invalid("slot name", slot, "1 to 63 of a-z, 0-9 and _")
	}
	err := o.on(ctx, dropSlotTimeout, true, func(ctx context.Context, url string) error {
		return dropSlotError(wal.DropSlot(ctx, url, slot))
	})
	if err != nil {
		return err
	}
	return o.app.emit(map[string]any{"dropped": slot}, func() { o.app.printf("dropped the slot %s\n", slot) })
}

// dropSlotError gives the errors of dropping their exit codes and says what to
// do about them.
func dropSlotError(err error) error {
	switch {
	case errors.Is(err, wal.ErrNoSlot):
		return coded{err, exitNotFound}
	case errors.Is(err, wal.ErrSlotInUse):
		return coded{hinted{err, "stop its reader first"}, exitConflict}
	case isA[*pgconn.ParseConfigError](err):
		// Its text may hold a password.
		return usagef("read the database URL: the connection string cannot be read (its text is withheld: it may hold a password)")
	case isA[*pgconn.ConnectError](err):
		return coded{fmt.Errorf("the database cannot be reached: %w", err), exitUnavailable}
	}
	return err
}
