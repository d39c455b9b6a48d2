package wal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tasker-go/tasker/internal/signal/pgdial"
)

// Errors about a slot; they are wrapped with its name.
var (
	// ErrSlotInUse: another connection reads the slot. A slot has one reader.
	ErrSlotInUse = errors.New("replication slot is in use by another connection")
	// errSlotForeign: a slot of that name is not a pgoutput slot of this
	// database.
	errSlotForeign = errors.New("replication slot belongs to something else")
	// ErrNoSlot: there is no logical slot of that name in this database.
	ErrNoSlot = errors.New("no such replication slot")
)

// SlotLostMessage is the log message for Config.OnSlotLost.
const SlotLostMessage = "the replication slot had lost the WAL that it needs (max_slot_wal_keep_size) and was made anew; signals since then are lost, a full scan replaces them"

// SQLSTATE codes handled here.
const (
	codeObjectInUse     = "55006"
	codeDuplicateObject = "42710"
	codeUniqueViolation = "23505" // CREATE PUBLICATION lost a race
)

// minServerVersion is the first version whose pgoutput sends messages.
const minServerVersion = 140000

const outputPlugin = "pgoutput"

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// ValidSlot reports whether name can be the name of a slot.
func ValidSlot(name string) bool { return slotName.MatchString(name) }

// temporarySlotName is unique, so that any number of listeners can read.
func temporarySlotName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return "tasker_tmp_" + hex.EncodeToString(b[:])
}

// ensurePublication creates the publication without tables unless it exists. It uses an
// ordinary connection: creating needs another right than replicating.
func ensurePublication(ctx context.Context, conn *pgx.Conn, name string) error {
	var version int
	var exists bool
	err := conn.QueryRow(ctx, `select current_setting('server_version_num')::int,
		exists (select from pg_publication where pubname = $1)`, name).Scan(&version, &exists)
	switch {
	case err != nil:
		return fmt.Errorf("looking for the publication %q: %w", name, err)
	case version < minServerVersion:
		return fmt.Errorf("server version %d: the WAL source needs PostgreSQL 14 or later", version)
	case exists:
		return nil
	}
	_, err = conn.Exec(ctx, "create publication "+pgx.Identifier{name}.Sanitize())
	if err != nil && !hasCode(err, codeDuplicateObject) && !hasCode(err, codeUniqueViolation) {
		return fmt.Errorf("creating the publication %q: %w", name, err)
	}
	return nil
}

const findSlotSQL = `
select coalesce(plugin, ''), coalesce(database = current_database(), false), active,
       coalesce(wal_status = 'lost', false), coalesce(confirmed_flush_lsn, '0/0')::text
from pg_replication_slots where slot_name = $1`

// findSlot returns where a persistent slot continues; found is false when it must be
// created. A slot whose WAL the server has removed (max_slot_wal_keep_size) can never be
// read again: it is dropped, and onLost is called.
func findSlot(ctx context.Context, conn *pgx.Conn, name string, onLost func(slot string)) (start pglogrepl.LSN, found bool, err error) {
	var plugin, confirmed string
	var here, active, lost bool
	err = conn.QueryRow(ctx, findSlotSQL, name).Scan(&plugin, &here, &active, &lost, &confirmed)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("looking for the slot %q: %w", name, err)
	case plugin != outputPlugin || !here:
		return 0, false, fmt.Errorf("slot %q: %w", name, errSlotForeign)
	case active:
		return 0, false, fmt.Errorf("slot %q: %w", name, ErrSlotInUse)
	case lost:
		if _, err := conn.Exec(ctx, `select pg_drop_replication_slot($1)`, name); err != nil {
			return 0, false, fmt.Errorf("dropping the slot %q, which has lost the WAL it needs: %w", name, err)
		}
		onLost(name)
		return 0, false, nil
	}
	start, err = pglogrepl.ParseLSN(confirmed)
	return start, true, err
}

// createSlot creates a slot and returns where it starts.
func createSlot(ctx context.Context, conn *pgconn.PgConn, name string, temporary bool) (pglogrepl.LSN, error) {
	made, err := pglogrepl.CreateReplicationSlot(ctx, conn, name, outputPlugin, pglogrepl.CreateReplicationSlotOptions{
		Temporary: temporary, SnapshotAction: "NOEXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication,
	})
	if err != nil {
		return 0, fmt.Errorf("creating the slot %q: %w", name, err)
	}
	return pglogrepl.ParseLSN(made.ConsistentPoint)
}

// startReplication turns conn into a stream of the messages in the WAL.
func startReplication(ctx context.Context, conn *pgconn.PgConn, slot, publication string, start pglogrepl.LSN) error {
	names := pgx.Identifier{publication}.Sanitize()
	args := []string{
		// Version 1 is enough for messages; later ones stream unfinished transactions,
		// whose signals would announce work that does not exist.
		"proto_version '1'",
		"publication_names '" + strings.ReplaceAll(names, "'", "''") + "'",
		"messages 'true'",
	}
	err := pglogrepl.StartReplication(ctx, conn, slot, start,
		pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: args})
	if hasCode(err, codeObjectInUse) {
		return fmt.Errorf("slot %q: %w: %w", slot, ErrSlotInUse, err)
	}
	if err != nil {
		return fmt.Errorf("reading the slot %q: %w", slot, err)
	}
	return nil
}

// senderTimeout reads, on a replication connection that is not yet streaming, how long
// the server waits for a reply; 0 means for ever.
func senderTimeout(ctx context.Context, conn *pgconn.PgConn) (time.Duration, error) {
	const sql = `select setting || 'ms' from pg_settings where name = 'wal_sender_timeout'`
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err == nil && (len(results) != 1 || len(results[0].Rows) != 1) {
		err = errors.New("unexpected result")
	}
	if err != nil {
		return 0, fmt.Errorf("asking for wal_sender_timeout: %w", err)
	}
	return time.ParseDuration(string(results[0].Rows[0][0]))
}

// DropSlot drops a persistent slot of the database that dsn names, so that the server may
// recycle its WAL. The error wraps ErrNoSlot when there is none, ErrSlotInUse when a
// connection reads it; physical slots and those of other databases are not dropped. ctx
// should have a deadline.
func DropSlot(ctx context.Context, dsn, name string) (err error) {
	if !ValidSlot(name) {
		return fmt.Errorf("invalid slot name %q: want 1–63 of a-z, 0-9, _", name)
	}
	dial, err := pgdial.New(pgdial.Target{DSN: dsn, ApplicationName: "tasker-drop-slot"})
	if err != nil {
		return err
	}
	conn, err := dial.Connect(ctx)
	if err != nil {
		return fmt.Errorf("connecting to drop the slot %q: %w", name, err)
	}
	defer pgdial.Close(conn.PgConn())
	const sql = `select pg_drop_replication_slot(slot_name) from pg_replication_slots
		where slot_name = $1 and slot_type = 'logical' and database = current_database()`
	tag, err := conn.Exec(ctx, sql, name)
	switch {
	case hasCode(err, codeObjectInUse):
		return fmt.Errorf("dropping the slot %q: %w: %w", name, ErrSlotInUse, err)
	case err != nil:
		return fmt.Errorf("dropping the slot %q: %w", name, err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("dropping the slot %q: %w", name, ErrNoSlot)
	}
	return nil
}

func hasCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}
