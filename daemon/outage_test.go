package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/enginetest"
	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/worker"
)

// spell is a time in which a database does not answer, or answers flows though not at once.
type spell struct {
	from, to time.Duration
	pings    bool // pings are answered meanwhile
	hangs    bool // pings are not even refused
}

// scripted is a database with spells, whose last answer is as of a daemon that sends something each 3 s.
type scripted struct {
	began  time.Time
	spells []spell

	mu    sync.Mutex
	pings int
}

func (s *scripted) now() (spell, bool) {
	at := time.Since(s.began)
	i := slices.IndexFunc(s.spells, func(p spell) bool { return at >= p.from && at < p.to })
	if i < 0 {
		return spell{}, false
	}
	return s.spells[i], true
}

func (s *scripted) outage() (time.Time, error) {
	p, away := s.now()
	if !away {
		return time.Time{}, nil
	}
	return s.began.Add(p.from), errors.New("connection refused")
}

func (s *scripted) ping(ctx context.Context) error {
	s.mu.Lock()
	s.pings++
	s.mu.Unlock()
	p, away := s.now()
	switch {
	case !away || p.pings:
		return nil
	case p.hangs:
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("connection refused")
}

type outageLine struct {
	at    time.Duration // since the beginning
	level zapcore.Level
	away  time.Duration
}

func TestAnOutageIsSaidEachMinuteAndItsEndOnce(t *testing.T) {
	t.Parallel()
	const s, m = time.Second, time.Minute
	warn, info := zapcore.WarnLevel, zapcore.InfoLevel
	for name, c := range map[string]struct {
		spells []spell
		length time.Duration
		want   []outageLine
	}{
		"it answers":  {nil, time.Hour, nil},
		"a short one": {[]spell{{from: 10 * s, to: 14 * s}}, time.Hour, nil},
		"one of two minutes and a half": {[]spell{{from: 10 * s, to: 160 * s}}, time.Hour,
			[]outageLine{{15 * s, warn, 5 * s}, {75 * s, warn, 65 * s}, {135 * s, warn, 125 * s}, {160 * s, info, 150 * s}}},
		"two": {[]spell{{from: 10 * s, to: 30 * s}, {from: 5 * m, to: 5*m + 20*s}}, time.Hour,
			[]outageLine{{15 * s, warn, 5 * s}, {30 * s, info, 20 * s}, {5*m + 5*s, warn, 5 * s}, {5*m + 20*s, info, 20 * s}}},
		"two within the minute": {[]spell{{from: 10 * s, to: 30 * s}, {from: 40 * s, to: 80 * s}}, time.Hour,
			[]outageLine{{15 * s, warn, 5 * s}, {30 * s, info, 20 * s}, {75 * s, warn, 35 * s}, {80 * s, info, 40 * s}}},
		"flows fail and the database answers": {[]spell{{from: 10 * s, to: 10 * m, pings: true}}, time.Hour, nil},
		"it is back before a flow has met it": {
			[]spell{{from: 10 * s, to: 30 * s}, {from: 30 * s, to: m, pings: true}}, time.Hour,
			[]outageLine{{15 * s, warn, 5 * s}, {30 * s, info, 20 * s}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				require.Equal(t, c.want, said(t, &scripted{spells: c.spells}, c.length))
			})
		})
	}
}

// said runs the loop for a time and returns what it logged.
func said(t *testing.T, db *scripted, length time.Duration) (lines []outageLine) {
	t.Helper()
	db.began = time.Now()
	core, seen := observer.New(zapcore.DebugLevel)
	l := (&outages{outage: db.outage, ping: db.ping, log: zap.New(core)}).loop(nil)
	require.NoError(t, l.Start(t.Context()))
	time.Sleep(length) // of synctest
	require.NoError(t, l.Stop(t.Context()))
	for _, e := range seen.All() {
		line := outageLine{at: e.Time.Sub(db.began), level: e.Level}
		for _, f := range e.Context {
			switch f.Key {
			case "away":
				line.away = time.Duration(f.Integer)
			case "last_error":
				require.EqualError(t, f.Interface.(error), "connection refused")
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// TestAnOutageWithoutAnEnd is said for ever, though pings hang, and nothing is asked without one.
func TestAnOutageWithoutAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := said(t, &scripted{spells: []spell{{to: 1000 * time.Hour, hangs: true}}}, 24*time.Hour)
		require.InDelta(t, 24*60, len(lines), 60, "once a minute, and a moment for the pings")
		for i, l := range lines[1:] {
			require.Equal(t, zapcore.WarnLevel, l.level)
			require.LessOrEqual(t, l.at-lines[i].at, 61*time.Second)
		}
		quiet := &scripted{}
		require.Empty(t, said(t, quiet, 24*time.Hour))
		require.Zero(t, quiet.pings)
	})
}

// TestBothDaemonsSayThatTheirDatabaseIsAway, though nothing polls: heartbeats meet it.
func TestBothDaemonsSayThatTheirDatabaseIsAway(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, nil)
	hash, err := store.SchemaHash()
	require.NoError(t, err)
	loaded := loadToo(t, server.NewMigrated(t, hash, enginetest.Migrate),
		systemsOf("EventDrivenOnly", "EventDrivenOnly", "EventDrivenOnly")+"[orchestration]\nheartbeat_interval_ms = 1000\n")
	core, seen := observer.New(zapcore.InfoLevel)
	o, w, err := NewEmbedded(t.Context(), loaded, func(*worker.Worker) error { return nil }, zap.New(core))
	require.NoError(t, err)
	for _, d := range []interface {
		Start(context.Context) error
		Stop(context.Context) error
	}{o, w} {
		require.NoError(t, d.Start(t.Context()))
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			require.NoError(t, d.Stop(ctx))
		})
	}
	says := func(message string) []observer.LoggedEntry {
		var lines []observer.LoggedEntry
		pgtest.Eventually(t, time.Minute, func() (bool, string) {
			lines = seen.FilterMessageSnippet(message).All()
			return len(lines) == 2, fmt.Sprint(message, ": ", lines)
		})
		rooms := []string{lines[0].LoggerName, lines[1].LoggerName}
		require.ElementsMatch(t, []string{"orchestrator.store", "worker.store"}, rooms)
		return lines
	}
	require.NoError(t, server.Kill(t.Context()))
	for _, line := range says("the database is away") {
		require.Equal(t, zapcore.WarnLevel, line.Level)
		require.NotEmpty(t, line.ContextMap()["last_error"])
		require.GreaterOrEqual(t, line.ContextMap()["away"], outageBlip)
	}
	require.NoError(t, server.Restart(t.Context()))
	for _, line := range says("the database answers again") {
		require.Equal(t, zapcore.InfoLevel, line.Level)
		require.Greater(t, line.ContextMap()["away"], outageBlip)
	}
	require.Len(t, seen.FilterMessageSnippet("the database is away").All(), 2, "once each within the minute")
}
