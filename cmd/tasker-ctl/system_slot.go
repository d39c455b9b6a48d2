package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/signal/wal"
)

// dropSlotTimeout bounds dropping a slot unless --timeout says otherwise.
const dropSlotTimeout = 30 * time.Second

func newSystemDropSlotCommand(a *app) *cobra.Command {
	o := &databaseOptions{app: a}
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop-slot NAME",
		Short: "Drop a replication slot that nobody reads any more",
		Long: `Drops a persistent replication slot (common.signals.wal.slot), so that the
server may recycle the WAL it keeps. The database is that of --database-url,
else of DATABASE_URL, else of the configuration (its listener_url first); it
must be the one that the slot was made in. A slot that is being read is left
alone: stop its reader first. The signals in it are lost; whoever listens next
looks at everything anyway.`,
		Example: "  tasker-ctl system drop-slot tasker_worker_7 --yes",
		Args:    arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return hinted{usagef("system drop-slot gives up what waits in the slot %q", args[0]), "confirm with --yes"}
			}
			return o.dropSlot(cmd.Context(), args[0])
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, nobody needs it any more")
	o.flags(cmd)
	return cmd
}

func (o *databaseOptions) dropSlot(ctx context.Context, slot string) error {
	if !wal.ValidSlot(slot) {
		return usagef("%q is no name of a slot: it has 1 to 63 of a-z, 0-9 and _", slot)
	}
	url, err := o.directURL()
	if err != nil {
		return err
	}
	o.app.logf(1, "database %s", config.DSN(url))
	limit := dropSlotTimeout
	if o.app.global.timeout > 0 {
		limit = o.app.global.timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := dropSlotError(wal.DropSlot(ctx, url, slot)); err != nil {
		return err
	}
	return o.app.emit(map[string]any{"dropped": slot}, func() { o.app.printf("dropped the slot %s\n", slot) })
}

// dropSlotError gives the errors of dropping their exit codes and says what to
// do about them.
func dropSlotError(err error) error {
	var connect *pgconn.ConnectError
	var parse *pgconn.ParseConfigError
	switch {
	case errors.Is(err, wal.ErrNoSlot):
		return coded{err, exitNotFound}
	case errors.Is(err, wal.ErrSlotInUse):
		return coded{hinted{err, "stop its reader first"}, exitConflict}
	case errors.As(err, &parse):
		// Its text may hold a password.
		return usagef("read the database URL: the connection string cannot be read (its text is withheld: it may hold a password)")
	case errors.As(err, &connect):
		return coded{fmt.Errorf("the database cannot be reached: %w", err), exitUnavailable}
	}
	return err
}
