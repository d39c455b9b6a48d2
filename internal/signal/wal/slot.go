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

// Log messages for Config.OnSlotLost and Config.OnSlotUnbounded.
const (
	SlotLostMessage      = "the server had invalidated the replication slot, and it was made anew; signals since then are lost, a full scan replaces them"
	SlotUnboundedMessage = "max_slot_wal_keep_size is -1: without its reader the replication slot keeps WAL until the disk of the server is full"
)

// SQLSTATE codes handled here.
const (
	codeObjectInUse     = "55006"
	codeDuplicateObject = "42710"
	codeUniqueViolation = "23505" // CREATE PUBLICATION lost a race
	codeDenied          = "42501"
)

const (
	messagesVersion = 140000 // the first whose pgoutput sends messages
	failoverVersion = 170000 // the first that copies slots to standbys
)

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

// server is the server's own description.
type server struct {
	version     int
	walLevel    string
	unbounded   bool // a slot may keep WAL without limit
	publication bool // exists
}

const serverSQL = `
select current_setting('server_version_num')::int, current_setting('wal_level'),
       current_setting('max_slot_wal_keep_size') = '-1', exists (select from pg_publication where pubname = $1)`

// ensurePublication creates the publication without tables unless it exists, on a server
// that can do what cfg wants. It uses an ordinary connection: creating needs another
// right than replicating.
func ensurePublication(ctx context.Context, conn *pgx.Conn, cfg Config) error {
	var s server
	err := conn.QueryRow(ctx, serverSQL, cfg.Publication).Scan(&s.version, &s.walLevel, &s.unbounded, &s.publication)
	switch {
	case err != nil:
		return fmt.Errorf("looking for the publication %q: %w", cfg.Publication, err)
	case s.version < messagesVersion:
		return fmt.Errorf("server version %d: reading signals from the WAL needs PostgreSQL 14 or later", s.version)
	case s.walLevel != "logical":
		return fmt.Errorf("invalid wal_level %q of the server: reading signals from the WAL needs logical, and a restart of the server; the event source notify works with any", s.walLevel)
	case cfg.Failover && s.version < failoverVersion:
		return fmt.Errorf("server version %d: a slot with failover needs PostgreSQL 17 or later", s.version)
	}
	if cfg.Slot != "" && s.unbounded {
		cfg.OnSlotUnbounded(cfg.Slot)
	}
	if s.publication {
		return nil
	}
	_, err = conn.Exec(ctx, "create publication "+pgx.Identifier{cfg.Publication}.Sanitize())
	if err != nil && !hasCode(err, codeDuplicateObject) && !hasCode(err, codeUniqueViolation) {
		return fmt.Errorf("creating the publication %q: %w", cfg.Publication, denied(err, "create on the database, or its owner makes the publication"))
	}
	return nil
}

// denied names the right that the role lacks, if that is the cause of err.
func denied(err error, needs string) error {
	if hasCode(err, codeDenied) {
		return fmt.Errorf("the role needs %s: %w", needs, err)
	}
	return err
}

// replicating is the right to make and read slots.
const replicating = "the attribute REPLICATION (on Amazon RDS: membership of rds_replication)"

// place is where the stream of a slot begins.
type place struct {
	start    pglogrepl.LSN
	found    bool // the slot exists
	failover bool // the slot is one that standbys copy
}

// The versions differ in their columns, hence JSON.
const findSlotSQL = `
select coalesce(plugin, ''), coalesce(database = current_database(), false), active, coalesce(wal_status = 'lost', false),
       coalesce(confirmed_flush_lsn, '0/0')::text, coalesce((to_jsonb(s) ->> 'failover')::boolean, false),
       coalesce(to_jsonb(s) ->> 'invalidation_reason', 'wal_removed')
from pg_replication_slots s where slot_name = $1`

// findSlot returns where a persistent slot continues, the zero value when it must be
// created. A slot that the server has invalidated (max_slot_wal_keep_size,
// idle_replication_slot_timeout) can never be read again: it is dropped, and onLost is
// called.
func findSlot(ctx context.Context, conn *pgx.Conn, name string, onLost func(slot, reason string)) (at place, err error) {
	var plugin, confirmed, reason string
	var here, active, lost bool
	err = conn.QueryRow(ctx, findSlotSQL, name).Scan(&plugin, &here, &active, &lost, &confirmed, &at.failover, &reason)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return place{}, nil
	case err != nil:
		return place{}, fmt.Errorf("looking for the slot %q: %w", name, err)
	case plugin != outputPlugin || !here:
		return place{}, fmt.Errorf("slot %q: %w", name, errSlotForeign)
	case active:
		return place{}, fmt.Errorf("slot %q: %w", name, ErrSlotInUse)
	case lost:
		if _, err := conn.Exec(ctx, `select pg_drop_replication_slot($1)`, name); err != nil {
			return place{}, fmt.Errorf("dropping the slot %q, invalidated by the server (%s): %w", name, reason, err)
		}
		onLost(name, reason)
		return place{}, nil
	}
	at.found = true
	at.start, err = pglogrepl.ParseLSN(confirmed)
	return at, err
}

// createSlot creates a slot and returns where it starts.
func createSlot(ctx context.Context, conn *pgconn.PgConn, name string, temporary, failover bool) (pglogrepl.LSN, error) {
	options := pglogrepl.CreateReplicationSlotOptions{
		Temporary: temporary, SnapshotAction: "NOEXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication,
	}
	if failover { // the options of PostgreSQL 15 and later stand where the snapshot does
		options.SnapshotAction = "(SNAPSHOT 'nothing', FAILOVER)"
	}
	made, err := pglogrepl.CreateReplicationSlot(ctx, conn, name, outputPlugin, options)
	if err != nil {
		return 0, fmt.Errorf("creating the slot %q: %w", name, denied(err, replicating))
	}
	return pglogrepl.ParseLSN(made.ConsistentPoint)
}

// setFailover makes an existing slot one that standbys copy.
func setFailover(ctx context.Context, conn *pgconn.PgConn, name string) error {
	if _, err := conn.Exec(ctx, "ALTER_REPLICATION_SLOT "+name+" (FAILOVER true)").ReadAll(); err != nil {
		return fmt.Errorf("setting failover of the slot %q: %w", name, err)
	}
	return nil
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
