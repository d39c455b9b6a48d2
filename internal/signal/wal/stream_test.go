package wal_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
)

// withSetting returns dsn with a server setting for its sessions.
func withSetting(t *testing.T, dsn, name, value string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// TestIdleConnectionLives: without a Receive and any activity for several times
// wal_sender_timeout, the server keeps the connection.
func TestIdleConnectionLives(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	c := connect(t, source(t, wal.Config{DSN: withSetting(t, db.DSN, "wal_sender_timeout", "600ms")}, pool), signal.TopicControl)
	const replied = `select coalesce(max(extract(epoch from reply_time) * 1000)::bigint, 0)
		from pg_stat_replication where application_name = 'tasker-listener'
		and pid in (select active_pid from pg_replication_slots where database = current_database())`
	begin := 0
	pgtest.Eventually(t, patience, func() (bool, string) { begin = db.QueryInt(t, replied); return begin > 0, "no reply yet" })
	pgtest.Eventually(t, patience, func() (bool, string) {
		now := db.QueryInt(t, replied)
		if now == 0 {
			t.Fatal("the server has ended the connection")
		}
		return now-begin > 2000, "the last reply is too old"
	})
	send(t, pool, "still here")
	if got := receive(t, c).Payload; got != "still here" {
		t.Errorf("received %q", got)
	}
}

// TestIdleSlotAdvances: a persistent slot does not retain unrelated WAL when there are no
// signals.
func TestIdleSlotAdvances(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	dropAtEnd(t, db, slotOf(db))
	connect(t, source(t, wal.Config{DSN: db.DSN, Slot: slotOf(db), StatusInterval: 20 * time.Millisecond}, pool), signal.TopicControl)
	db.Exec(t, `create table noise as select generate_series(1, 10000) n`)
	end := db.QueryString(t, `select pg_current_wal_lsn()::text`)
	pgtest.Eventually(t, patience, func() (bool, string) {
		at := db.QueryString(t, `select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1`, slotOf(db))
		return db.QueryBool(t, `select $1::text::pg_lsn >= $2::text::pg_lsn`, at, end), "slot at " + at + ", WAL at " + end
	})
}

// TestUnreceivedIsNotConfirmed: while a signal waits, a persistent slot stays before it;
// a temporary slot does not.
func TestUnreceivedIsNotConfirmed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	dropAtEnd(t, db, slotOf(db))
	c := connect(t, source(t, wal.Config{DSN: db.DSN, Slot: slotOf(db), StatusInterval: 20 * time.Millisecond}, pool), signal.TopicControl)
	message := db.QueryString(t, `select pg_logical_emit_message(true, 'tasker', decode('7461736b65725f636f6e74726f6c007761697473', 'hex'))::text`)
	db.Exec(t, `create table noise as select generate_series(1, 10000) n`)
	end := db.QueryString(t, `select pg_current_wal_lsn()::text`)
	const state = `select coalesce(r.write_lsn, '0/0') >= $2::text::pg_lsn and (s.confirmed_flush_lsn >= $2::text::pg_lsn) = $3
		from pg_replication_slots s join pg_stat_replication r on r.pid = s.active_pid where s.slot_name = $1`
	reached := func(confirmed bool) { // the stream reaches the end, and the slot does or does not
		t.Helper()
		pgtest.Eventually(t, patience, func() (bool, string) {
			return db.QueryBool(t, state, slotOf(db), end, confirmed), "the stream has not come to the end"
		})
	}
	reached(false)
	if at := db.QueryString(t, `select confirmed_flush_lsn::text from pg_replication_slots where slot_name = $1`, slotOf(db)); db.QueryBool(t, `select $1::text::pg_lsn > $2::text::pg_lsn`, at, message) {
		t.Errorf("confirmed %s; the signal that waits is at %s", at, message)
	}
	if got := receive(t, c).Payload; got != "waits" {
		t.Fatalf("received %q", got)
	}
	reached(true)
}

func TestProbeRefreshesLag(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, nil).New(t) // a private server, because the test freezes a process
	pool := db.Pool(t)
	probe := signal.ProbeTopic("me")
	c := connect(t, source(t, wal.Config{DSN: db.DSN, Server: pool, StatusInterval: 20 * time.Millisecond}, pool), probe)
	for range 3 {
		if err := c.Probe(bounded(t), signal.Signal{Topic: probe, Payload: "nonce"}); err != nil {
			t.Fatal(err)
		}
		receive(t, c)
	}
	pgtest.Eventually(t, patience, func() (bool, string) { return c.LagBytes() == 0, "lag does not come to zero" })

	// A walsender that makes no progress: only the server's own answer shows it.
	pid := db.QueryInt(t, `select active_pid from pg_replication_slots where database = current_database()`)
	stopProcess(t, pid)
	db.Exec(t, `create table noise as select generate_series(1, 10000) n`)
	if err := c.Probe(bounded(t), signal.Signal{Topic: probe, Payload: "nonce"}); err != nil {
		t.Fatal(err)
	}
	if lag := c.LagBytes(); lag < 100_000 {
		t.Errorf("lag of a server that does not send = %d bytes", lag)
	}
	continueProcess(t, pid)
	receive(t, c)
	pgtest.Eventually(t, patience, func() (bool, string) { return c.LagBytes() == 0, "lag does not come to zero" })
}

// TestSilentServer: a silent server is given up.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	db := pgtest.Private(t, nil).New(t) // a private server, because the test freezes a process
	s := source(t, wal.Config{DSN: db.DSN, StatusInterval: 20 * time.Millisecond, SilenceTimeout: 300 * time.Millisecond}, db.Pool(t))
	c := connect(t, s, signal.TopicControl)
	pid := db.QueryInt(t, `select active_pid from pg_replication_slots where database = current_database()`)
	stopProcess(t, pid)
	_, err := c.Receive(bounded(t))
	continueProcess(t, pid)
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, signal.ErrClosed) {
		t.Errorf("Receive = %v, want an error about the silent server", err)
	}
}

// TestServerShutdownIsNotHeldUp: a server that shuts down waits until its walsenders have
// confirmed everything. Signals without a Receive must not keep a temporary slot from
// confirming, and a persistent slot survives the restart.
func TestServerShutdownIsNotHeldUp(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, nil)
	db := server.New(t)
	pool := db.Pool(t)
	slot := slotOf(db)
	kept := source(t, wal.Config{DSN: db.DSN, Slot: slot}, pool)
	closeNow(t, connect(t, kept, signal.TopicControl)) // makes the slot
	c := connect(t, source(t, wal.Config{DSN: db.DSN}, pool), signal.TopicControl)
	send(t, pool, "not received before the restart")
	ctx, cancel := context.WithTimeout(bounded(t), 15*time.Second)
	defer cancel()
	if err := server.Restart(ctx); err != nil {
		t.Fatalf("Restart: %v", err)
	}
	if got := receive(t, c).Payload; got != "not received before the restart" {
		t.Errorf("received %q", got)
	}
	if _, err := c.Receive(bounded(t)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Receive after the restart = %v, want an error at once", err)
	}
	if got := receive(t, connect(t, kept, signal.TopicControl)).Payload; got != "not received before the restart" {
		t.Errorf("the persistent slot returned %q", got)
	}
}
