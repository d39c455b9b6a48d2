package wal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/signal/contract"
	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
)

const patience = 60 * time.Second

// slotOf derives a name that is unique on the server, where slots live.
func slotOf(db *pgtest.DB) string { return "slot_" + db.Name }

func dropAtEnd(t *testing.T, db *pgtest.DB, slot string) {
	t.Cleanup(func() {
		if err := wal.DropSlot(bounded(t), db.DSN, slot); err != nil && !errors.Is(err, wal.ErrNoSlot) {
			t.Errorf("DropSlot: %v", err)
		}
	})
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

func source(t *testing.T, cfg wal.Config, pool *pgxpool.Pool) signal.Source {
	t.Helper()
	s, err := wal.New(cfg, wal.NewTransport(pool))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// stream is a connection that measures its lag.
type stream interface {
	signal.Connection
	LagBytes() int64
}

func connect(t *testing.T, s signal.Source, topics ...signal.Topic) stream {
	t.Helper()
	c, err := s.Connect(bounded(t), topics)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(func() { closeNow(t, c) })
	wc, ok := c.(stream)
	if !ok {
		t.Fatalf("Connect returned a %T", c)
	}
	return wc
}

func closeNow(t *testing.T, c signal.Connection) {
	t.Helper()
	if err := c.Close(bounded(t)); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func receive(t *testing.T, c signal.Connection) signal.Signal {
	t.Helper()
	s, err := c.Receive(bounded(t))
	if err != nil {
		t.Fatalf("Receive: %v", err)
	}
	return s
}

func send(t *testing.T, pool *pgxpool.Pool, payloads ...string) {
	t.Helper()
	var batch []signal.Signal
	for _, p := range payloads {
		batch = append(batch, signal.Signal{Topic: signal.TopicControl, Payload: p})
	}
	if err := wal.NewTransport(pool).Send(bounded(t), batch); err != nil {
		t.Fatalf("Send: %v", err)
	}
}

func TestContractWithPersistentSlot(t *testing.T) {
	contract.Run(t, func(t *testing.T) contract.Setup {
		db := pgtest.New(t)
		pool := db.Pool(t)
		dropAtEnd(t, db, slotOf(db))
		return contract.Setup{
			Source:    source(t, wal.Config{DSN: db.DSN, Slot: slotOf(db)}, pool),
			Transport: wal.NewTransport(pool),
			OneReader: true,
			Kill: func(t *testing.T) {
				if db.Exec(t, killSQL) == 0 { // the session that made the slot may not have left yet
					t.Fatal("there is no listening session")
				}
			},
		}
	})
}

// A persistent slot repeats signals that Receive did not return and signals sent while
// no listener was connected; none that were returned before Close.
func TestPersistentSlotResumes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	dropAtEnd(t, db, slotOf(db))
	s := source(t, wal.Config{DSN: db.DSN, Slot: slotOf(db)}, pool)

	c := connect(t, s, signal.TopicControl)
	send(t, pool, "handed out")
	send(t, pool, "waiting 1")
	send(t, pool, "waiting 2")
	if got := receive(t, c).Payload; got != "handed out" {
		t.Fatalf("received %q", got)
	}
	// Wait until the others have arrived on this side.
	pgtest.Eventually(t, patience, func() (bool, string) {
		return db.QueryBool(t, `select coalesce(sent_lsn >= pg_current_wal_flush_lsn(), false)
			from pg_stat_replication where pid = (select active_pid from pg_replication_slots where slot_name = $1)`, slotOf(db)), "not sent"
	})
	closeNow(t, c)
	send(t, pool, "while away")

	c = connect(t, s, signal.TopicControl)
	send(t, pool, "newest")
	for _, want := range []string{"waiting 1", "waiting 2", "while away", "newest"} {
		if got := receive(t, c).Payload; got != want {
			t.Fatalf("received %q, want %q", got, want)
		}
	}
	closeNow(t, c)
	send(t, pool, "last")
	c = connect(t, s, signal.TopicControl)
	got := receive(t, c).Payload
	if got == "newest" { // the end of its transaction may not have been read before Close
		got = receive(t, c).Payload
	}
	if got != "last" {
		t.Fatalf("received %q, want a signal after the last Close", got)
	}
}

func TestSlotErrors(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	slot := slotOf(db)
	dropAtEnd(t, db, slot)
	s := source(t, wal.Config{DSN: db.DSN, Slot: slot}, pool)
	c := connect(t, s)

	if _, err := s.Connect(bounded(t), nil); !errors.Is(err, wal.ErrSlotInUse) || !strings.Contains(err.Error(), slot) {
		t.Errorf("Connect to a slot in use = %v", err)
	}
	if err := wal.DropSlot(bounded(t), db.DSN, slot); !errors.Is(err, wal.ErrSlotInUse) {
		t.Errorf("DropSlot of a slot in use = %v", err)
	}
	other := pgtest.New(t)
	if _, err := source(t, wal.Config{DSN: other.DSN, Slot: slot}, pool).Connect(bounded(t), nil); !errors.Is(err, wal.ErrSlotForeign) {
		t.Errorf("Connect to the slot of another database = %v", err)
	}
	if err := wal.DropSlot(bounded(t), other.DSN, slot); !errors.Is(err, wal.ErrNoSlot) {
		t.Errorf("DropSlot of another database's slot = %v", err)
	}
	closeNow(t, c)
	if err := wal.DropSlot(bounded(t), db.DSN, slot); err != nil {
		t.Errorf("DropSlot right after Close = %v", err)
	}
	if err := wal.DropSlot(bounded(t), db.DSN, slot); !errors.Is(err, wal.ErrNoSlot) {
		t.Errorf("DropSlot once more = %v", err)
	}
	for _, bad := range []string{"", "Upper", "x'; drop", strings.Repeat("x", 64)} {
		if err := wal.DropSlot(bounded(t), db.DSN, bad); err == nil {
			t.Errorf("DropSlot(%q) was accepted", bad)
		}
		if _, err := wal.New(wal.Config{DSN: db.DSN, Slot: bad}, wal.NewTransport(pool)); err == nil && bad != "" {
			t.Errorf("New with slot %q was accepted", bad)
		}
	}
}

func TestTemporarySlotGoesWithTheConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	c := connect(t, source(t, wal.Config{DSN: db.DSN}, db.Pool(t)))
	const count = `select count(*) from pg_replication_slots where database = current_database() and temporary and plugin = 'pgoutput'`
	if n := db.QueryInt(t, count); n != 1 {
		t.Fatalf("%d temporary slots while connected, want 1", n)
	}
	closeNow(t, c)
	if n := db.QueryInt(t, count); n != 0 {
		t.Errorf("%d temporary slots right after Close, want 0", n)
	}
}

func TestPublicationIsMadeOnceAndWithoutTables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	const odd = `Odd "name", with 'quotes'`
	s := source(t, wal.Config{DSN: db.DSN, Publication: odd}, pool)
	var wg sync.WaitGroup
	for range 4 { // at the same time
		wg.Go(func() {
			c, err := s.Connect(bounded(t), []signal.Topic{signal.TopicControl})
			if err != nil {
				t.Errorf("Connect: %v", err)
				return
			}
			closeNow(t, c)
		})
	}
	wg.Wait()
	if n := db.QueryInt(t, `select count(*) from pg_publication where pubname = $1 and not puballtables`, odd); n != 1 {
		t.Errorf("%d publications, want 1", n)
	}
	if n := db.QueryInt(t, `select count(*) from pg_publication_tables`); n != 0 {
		t.Errorf("the publication has %d tables", n)
	}
	c := connect(t, s, signal.TopicControl)
	send(t, pool, "through the odd one")
	if got := receive(t, c).Payload; got != "through the odd one" {
		t.Errorf("received %q", got)
	}
}

// TestOnlyCommittedSignals: a message belongs to the transaction that emits it, and other
// records in the WAL have no effect.
func TestOnlyCommittedSignals(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, `create table noise (id int)`)
	db.Exec(t, `create publication tasker_signals for table noise`)
	c := connect(t, source(t, wal.Config{DSN: db.DSN}, db.Pool(t)), signal.TopicControl)
	emit := func(prefix, content string, transactional bool) string {
		return fmt.Sprintf(`select pg_logical_emit_message(%v, '%s', decode('%x', 'hex'))`, transactional, prefix, content)
	}
	db.Exec(t, `insert into noise select generate_series(1, 1000)`)
	db.Exec(t, `do $$ begin perform `+strings.TrimPrefix(emit("tasker", "tasker_control\x00rolled back", true), "select ")+`; raise exception 'no'; exception when others then null; end $$`)
	db.Exec(t, emit("other", "tasker_control\x00foreign prefix", true))
	db.Exec(t, emit("tasker", "not a signal", true))
	db.Exec(t, emit("tasker", "", true))
	db.Exec(t, emit("tasker", "tasker_control\x00outside of transactions", false))
	db.Exec(t, `truncate noise`)
	db.Exec(t, emit("tasker", "tasker_control\x00committed", true))
	for _, want := range []string{"outside of transactions", "committed"} {
		if got := receive(t, c).Payload; got != want {
			t.Fatalf("received %q, want %q", got, want)
		}
	}
}
