package store_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/signal"
)

func TestSignalsTravelWithTheCommitAndOnlyWithIt(t *testing.T) {
	t.Parallel()
	_, db := private(t, store.Options{})
	db.Exec(t, `create publication signals`)
	s, err := store.Open(t.Context(), store.Options{URL: db.DSN, SignalsInTransaction: true})
	require.NoError(t, err)
	defer s.Close()
	require.True(t, s.SendsSignals())
	p := plan(t, s, diamondYAML)
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err = conn.Exec(t.Context(), `select pg_create_logical_replication_slot('signals', 'pgoutput', true)`)
	require.NoError(t, err)
	sent := func() []signal.Signal { return decoded(t, conn) }
	shapes := store.CreateSignals([]store.NewTask{newTask(p)})[0]

	id := create(t, s, p, 1)[0]
	require.Equal(t, []signal.Signal{shapes}, sent())
	delayed := newTask(p)
	delayed.StartIn = time.Hour
	_, err = s.CreateTasks(t.Context(), []store.NewTask{delayed})
	require.NoError(t, err)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, sent())

	broken := newTask(p)
	broken.Context = json.RawMessage(`"\u0000"`)
	_, err = s.CreateTasks(t.Context(), []store.NewTask{newTask(p), broken})
	require.Error(t, err)
	require.Empty(t, sent(), "no task was created")

	c := claim(t, s, p, 1)[0]
	require.Empty(t, sent(), "a claim sends no signal")
	_, err = s.Report(t.Context(), []store.Report{succeed(c, `"\u0000"`)})
	require.Error(t, err)
	require.Empty(t, sent())
	report(t, s, succeed(c, `1`))
	require.Equal(t, []signal.Signal{{Topic: signal.TopicOrchestration}}, sent())

	taken, err := s.TakeReported(t.Context(), 1, true)
	require.NoError(t, err)
	taken.Release()
	require.Empty(t, sent(), "it was rolled back")
	_, err = s.Watch(t.Context(), id)
	require.NoError(t, err)
	applyAll(t, s)
	left, _ := p.StepNumber("left")
	right, _ := p.StepNumber("right")
	both := laneOf(p, left, 0, true) + "," + laneOf(p, right, 0, true)
	require.Equal(t, []signal.Signal{{Topic: shapes.Topic, Payload: both}}, sent(), "for the applied steps; watching sends no signal")
	for range 2 {
		for _, c := range claim(t, s, p, 10) {
			report(t, s, succeed(c, `1`))
		}
		sent()
		applyAll(t, s)
	}
	require.Equal(t, []signal.Signal{{Topic: signal.TopicTasks, Payload: id.String()}}, sent(), "a client waits for the end")

	db.Exec(t, `update tasker.board set due_at = now() - interval '1 s' where state = 1`)
	promoted, err := s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	require.Equal(t, promoted.Signals, sent())
	require.Equal(t, []signal.Signal{shapes}, promoted.Signals)
	_, err = s.PromoteDue(t.Context(), store.UpTo(10))
	require.NoError(t, err)
	require.Empty(t, sent(), "nothing was due")
	last := claim(t, s, p, 1)[0]
	require.NoError(t, s.ReleaseLeases(t.Context(), []store.ClaimKey{key(last)}))
	require.Equal(t, []signal.Signal{{Topic: signal.TopicDue}}, sent())
	expired, err := s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Equal(t, 1, expired.Lost)
	require.Equal(t, []signal.Signal{{Topic: signal.TopicOrchestration}}, sent())
	_, err = s.ExpireLeases(t.Context(), store.UpTo(10), 10)
	require.NoError(t, err)
	require.Empty(t, sent())
}

// decoded reads the messages of committed transactions from the slot: 'M', a
// byte of flags, eight of position, the prefix, and the content by its length.
func decoded(t *testing.T, conn *pgx.Conn) (signals []signal.Signal) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `select data from pg_logical_slot_get_binary_changes('signals', null, null,
		'proto_version', '1', 'publication_names', 'signals', 'messages', 'true')`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	require.NoError(t, err)
	for _, m := range list {
		if m[0] != 'M' {
			continue
		}
		require.EqualValues(t, 1, m[1], "the message belongs to its transaction")
		prefix, rest, found := bytes.Cut(m[10:], []byte{0})
		require.True(t, found)
		require.Equal(t, wal.Prefix, string(prefix))
		require.EqualValues(t, len(rest)-4, binary.BigEndian.Uint32(rest))
		s, err := wal.Decode(rest[4:])
		require.NoError(t, err)
		signals = append(signals, s)
	}
	return signals
}
