package wal_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
)

// version is the version number of the server of the tests.
func version(t *testing.T, db *pgtest.DB) int {
	t.Helper()
	return db.QueryInt(t, `select current_setting('server_version_num')::int`)
}

// refused connects, which must fail with an error that contains all the texts.
func refused(t *testing.T, s signal.Source, texts ...string) {
	t.Helper()
	c, err := s.Connect(bounded(t), nil)
	if err == nil {
		closeNow(t, c)
		t.Fatal("Connect succeeded")
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("Connect = %v, want an error that contains %q", err, text)
		}
	}
}

// queryBool asks a server that pgtest has no database on.
func queryBool(t *testing.T, dsn, sql string) (yes bool) {
	t.Helper()
	conn, err := pgx.Connect(bounded(t), dsn)
	if err == nil {
		defer func() { _ = conn.Close(bounded(t)) }()
		err = conn.QueryRow(bounded(t), sql).Scan(&yes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return yes
}

// TestAServerWithoutLogicalWAL: operators of managed servers meet this first.
func TestAServerWithoutLogicalWAL(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, map[string]string{"wal_level": "replica"}).New(t)
	refused(t, source(t, wal.Config{DSN: db.DSN}, db.Pool(t)), `invalid wal_level "replica"`, "logical", "notify")
	if n := db.QueryInt(t, `select count(*) from pg_publication`); n != 0 {
		t.Errorf("%d publications were left", n)
	}
}

// TestARoleThatLacksRights: each right that is missing is named, and with the last one the
// role reads.
func TestARoleThatLacksRights(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	role := "plain_" + db.Name
	db.Exec(t, fmt.Sprintf(`create role %[1]s login password '%[1]s'`, role))
	t.Cleanup(func() { db.Exec(t, `drop role `+role) })
	dsn, err := url.Parse(db.TCPDSN)
	if err != nil {
		t.Fatal(err)
	}
	dsn.User = url.UserPassword(role, role)
	s := source(t, wal.Config{DSN: dsn.String()}, db.Pool(t))
	refused(t, s, "publication", "the role needs create on the database")
	db.Exec(t, `create publication tasker_signals`)
	refused(t, s, "REPLICATION", "rds_replication")
	db.Exec(t, `alter role `+role+` replication`)
	closeNow(t, connect(t, s))
}

// TestASlotThatMayFillTheDiskIsReported: the servers of tests do not bound their slots, as
// PostgreSQL does not by default.
func TestASlotThatMayFillTheDiskIsReported(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	slot := slotOf(db)
	dropAtEnd(t, db, slot)
	var reported []string
	report := func(name string) { reported = append(reported, name) }
	closeNow(t, connect(t, source(t, wal.Config{DSN: db.DSN, OnSlotUnbounded: report}, db.Pool(t))))
	if len(reported) != 0 {
		t.Errorf("a temporary slot was reported: %q", reported)
	}
	closeNow(t, connect(t, source(t, wal.Config{DSN: db.DSN, Slot: slot, OnSlotUnbounded: report}, db.Pool(t))))
	if len(reported) != 1 || reported[0] != slot {
		t.Errorf("reported %q, want %q", reported, slot)
	}
}

// TestALostSlotIsMadeAnew: the server invalidated a slot while its reader was away. The
// signals since are lost, and a listener that connects looks at everything anyway; but new
// signals must arrive.
func TestALostSlotIsMadeAnew(t *testing.T) {
	t.Parallel()
	type fault struct {
		settings map[string]string
		reason   string
	}
	faults := []fault{{map[string]string{"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "48MB"}, "wal_removed"}}
	if version(t, pgtest.New(t)) >= 180000 {
		faults = append(faults, fault{map[string]string{"max_slot_wal_keep_size": "1GB", "idle_replication_slot_timeout": "1s"}, "idle_timeout"})
	}
	for _, f := range faults {
		t.Run(f.reason, func(t *testing.T) {
			t.Parallel()
			aLostSlotIsMadeAnew(t, f.settings, f.reason)
		})
	}
}

func aLostSlotIsMadeAnew(t *testing.T, settings map[string]string, reason string) {
	db := pgtest.Private(t, settings).New(t)
	pool := db.Pool(t)
	slot := slotOf(db)
	var lost []string
	s := source(t, wal.Config{
		DSN: db.DSN, Slot: slot,
		OnSlotLost:      func(name, reason string) { lost = append(lost, name+" "+reason) },
		OnSlotUnbounded: func(name string) { t.Errorf("%s was reported as unbounded", name) },
	}, pool)
	closeNow(t, connect(t, s, signal.TopicControl))
	send(t, pool, "lost with the slot")
	db.Exec(t, `create table noise (id int)`)
	pgtest.Eventually(t, patience, func() (bool, string) {
		db.Exec(t, `insert into noise values (1)`)
		db.Exec(t, `select pg_switch_wal()`)
		db.Exec(t, `checkpoint`)
		status := db.QueryString(t, `select wal_status from pg_replication_slots where slot_name = $1`, slot)
		return status == "lost", "the slot is " + status
	})
	for range 2 { // the second time it is an ordinary slot
		c := connect(t, s, signal.TopicControl)
		send(t, pool, "received")
		if got := receive(t, c).Payload; got != "received" {
			t.Fatalf("received %q", got)
		}
		closeNow(t, c)
	}
	if len(lost) != 1 || lost[0] != slot+" "+reason {
		t.Errorf("lost %q, want %q once", lost, slot+" "+reason)
	}
	dropAtEnd(t, db, slot)
}

// TestASlotSurvivesAFailover: the standby has a copy of the slot, and when it is promoted the
// listener goes on there; servers before PostgreSQL 17 cannot, and say so.
func TestASlotSurvivesAFailover(t *testing.T) {
	t.Parallel()
	if _, err := wal.New(wal.Config{DSN: "postgres://", Failover: true}, wal.NewTransport(nil)); err == nil {
		t.Error("failover of a temporary slot was accepted")
	}
	if db := pgtest.New(t); version(t, db) < 170000 {
		refused(t, source(t, wal.Config{DSN: db.DSN, Slot: slotOf(db), Failover: true}, db.Pool(t)), "PostgreSQL 17")
		return
	}
	primary := pgtest.Private(t, map[string]string{"sync_replication_slots": "on", "hot_standby_feedback": "on"})
	db := primary.New(t)
	pool := db.Pool(t)
	const slot = "survivor"
	cfg := wal.Config{DSN: db.DSN, Slot: slot}
	closeNow(t, connect(t, source(t, cfg, pool), signal.TopicControl)) // an ordinary slot at first
	cfg.Failover = true
	c := connect(t, source(t, cfg, pool), signal.TopicControl)
	standby := primary.Standby(t)
	cfg.DSN = pgtest.FailoverDSN(db.Name, primary.Cluster, standby.Cluster)
	s := source(t, cfg, pool)
	const ready = `select exists (select from pg_replication_slots where slot_name = '` + slot + `' and failover and not temporary and synced)`
	pgtest.Eventually(t, patience, func() (bool, string) {
		send(t, pool, "something to confirm") // a slot is copied when it has moved on
		receive(t, c)
		db.Exec(t, `select pg_log_standby_snapshot()`) // which the server does every 15 s by itself
		return queryBool(t, standby.DSN(db.Name), ready), "not copied"
	})
	closeNow(t, c)
	send(t, pool, "while away")
	caughtUp := fmt.Sprintf(`select pg_last_wal_replay_lsn() >= '%s'`, db.QueryString(t, `select pg_current_wal_flush_lsn()::text`))
	pgtest.Eventually(t, patience, func() (bool, string) {
		return queryBool(t, standby.DSN(db.Name), caughtUp), "the standby lags"
	})
	if err := primary.Kill(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c = connect(t, s, signal.TopicControl)
	for range 100 { // the copy may be a little behind, then signals come again
		if receive(t, c).Payload == "while away" {
			return
		}
	}
	t.Error("the signal sent while no listener was connected did not arrive after the failover")
}
