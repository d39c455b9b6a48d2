package attemptlog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"
)

// table is what the database has of one attempt.
type table struct{ chunks []Chunk }

func (d *table) write(l *Log[int]) {
	chunks, drop := l.Take()
	d.chunks = append(d.chunks, chunks...)
	if drop == nil {
		return
	}
	kept := d.chunks[:0]
	for _, c := range d.chunks {
		within := !c.At.Before(drop.From) && !c.At.After(drop.Upto) && c.First >= drop.FromLine && c.First < drop.UptoLine
		if !within {
			kept = append(kept, c)
		}
	}
	d.chunks = kept
}

func (d *table) lines(t require.TestingT) (lines []Line) {
	for i := range d.chunks {
		read, err := NewReader().Read(&d.chunks[i])
		require.NoError(t, err)
		require.Len(t, read, d.chunks[i].Lines)
		lines = append(lines, read...)
	}
	return lines
}

// Whatever is logged, and whenever it is written: the first and the last lines are there, without a
// gap, and no more than is kept.
func TestTheFirstAndTheLastLinesAreKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const kept = 8 << 10
		m := NewMemory[int](Bounds{Kept: kept, Line: 1 << 10, Pending: 1 << 20, After: time.Second}, func() {})
		l, d, at, total := m.NewLog(0), &table{}, time.Unix(1_700_000_000, 0), 0
		sizes := []int{}
		for range rapid.IntRange(1, 40).Draw(t, "rounds") {
			for range rapid.IntRange(0, 60).Draw(t, "lines") {
				at = at.Add(time.Duration(rapid.IntRange(-2, 5).Draw(t, "ms")) * time.Millisecond)
				text := fmt.Sprintf("%d %s", total, strings.Repeat("x", rapid.IntRange(0, 300).Draw(t, "size")))
				l.Add(at, Info, text, nil)
				sizes, total = append(sizes, len(appendLine(nil, at, Info, text, nil))), total+1
			}
			d.write(l)
		}
		lines := d.lines(t)
		require.Zero(t, m.Pending())
		seen, bytes := map[int64]bool{}, 0
		for i, line := range lines {
			require.True(t, strings.HasPrefix(line.Text, fmt.Sprintf("%d ", line.Number)), "%d: %s", line.Number, line.Text)
			require.False(t, seen[line.Number], "line %d is there twice", line.Number)
			if i > 0 {
				require.Greater(t, line.Number, lines[i-1].Number)
				require.False(t, line.At.Before(lines[i-1].At), "the order is that of the lines")
			}
			seen[line.Number] = true
			bytes += sizes[line.Number]
		}
		charged := func(n int) int { return max(sizes[n], leastCharge) } // as a chunk of its own
		for n, sum := 0, 0; n < total && sum+charged(n) <= kept; n++ {
			require.True(t, seen[int64(n)], "line %d of the first ones", n)
			sum += charged(n)
		}
		for n, sum := total-1, 0; n >= 0 && sum+charged(n) <= kept; n-- {
			require.True(t, seen[int64(n)], "line %d of the last ones, of %d", n, total)
			sum += charged(n)
		}
		// A chunk more of the first, a segment and a chunk more of the last.
		require.LessOrEqual(t, bytes, 2*kept+2*(kept/4+1<<10)+kept/segments+60*1<<10)
	})
}

// The lines in memory are bounded, however many attempts log without a write.
func TestTheMemoryOfLinesIsBounded(t *testing.T) {
	t.Parallel()
	const pending = 1 << 20
	for _, attempts := range []int{1, 10, 2_000} {
		m := NewMemory[int](Bounds{Kept: 512 << 10, Line: 16 << 10, Pending: pending, After: time.Second}, func() {})
		logs := make([]*Log[int], attempts)
		for i := range logs {
			logs[i] = m.NewLog(0)
		}
		most, text := int64(0), strings.Repeat("y", 200)
		for n := range 40_000 {
			logs[n%attempts].Add(time.Unix(int64(n), 0), Info, text, nil)
			most = max(most, m.Pending())
		}
		require.LessOrEqual(t, most, int64(2*pending+64<<10), "%d attempts", attempts)
		kept := 0
		for _, l := range logs {
			d := &table{}
			d.write(l)
			kept += len(d.lines(t))
		}
		require.EqualValues(t, 40_000, int64(kept)+m.Dropped(), "what is not kept is counted")
		require.Positive(t, m.Dropped())
	}
}

// An attempt that logs much leaves others their share.
func TestANoisyAttemptLeavesOthersTheirLines(t *testing.T) {
	t.Parallel()
	m := NewMemory[int](Bounds{Kept: 512 << 10, Line: 16 << 10, Pending: 64 << 10, After: time.Second}, func() {})
	noisy, quiet := m.NewLog(0), m.NewLog(0)
	for n := range 20_000 {
		noisy.Add(time.Unix(int64(n), 0), Info, strings.Repeat("z", 100), nil)
		if n%1_000 == 0 {
			quiet.Add(time.Unix(int64(n), 0), Info, "quiet", nil)
		}
	}
	d := &table{}
	d.write(quiet)
	require.Len(t, d.lines(t), 20)
}

func TestLinesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		m := NewMemory[int](Bounds{Kept: 1 << 20, Line: 1 << 20, Pending: 1 << 20}, func() {})
		l := m.NewLog(0)
		l.Add(time.UnixMicro(1_700_000_000_000_001), Warn, text, []byte(`{"a":[1,"<b>"]}`))
		chunks, drop := l.Take()
		require.Nil(t, drop)
		require.Len(t, chunks, 1)
		require.Equal(t, int16(1<<Warn), chunks[0].Levels)
		lines, err := NewReader().Read(&chunks[0])
		require.NoError(t, err)
		require.Equal(t, []Line{{At: time.UnixMicro(1_700_000_000_000_001).UTC(), Level: Warn, Text: strings.ToValidUTF8(replaced(text), "\ufffd"),
			Fields: json.RawMessage(`{"a":[1,"<b>"]}`)}}, lines)
	})
}

// replaced has a replacement character for each byte that is none of UTF-8; ToValidUTF8 has one for
// several.
func replaced(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

func TestWhatALoggerWritesIsAlsoKept(t *testing.T) {
	t.Parallel()
	m := NewMemory[int](Bounds{Kept: 1 << 20, Line: 1 << 10, Pending: 1 << 20}, func() {})
	l := m.NewLog(0)
	seen, logs := observer.New(zapcore.WarnLevel)
	logger := Tee(zap.New(seen).With(zap.String("task_uuid", "identifies")), l, Info, NewRedaction([]string{"password", "Token"}))
	logger.Debug("no")
	logger.Info("one", zap.Int("n", 1), zap.Duration("took", time.Second))
	logger.With(zap.String("PASSWORD", "secret")).Named("x").Warn("two", zap.Any("deep", map[string]any{"list": []any{map[string]any{"token": "secret", "n": 12345678901234567}}}))
	logger.Error("three", zap.String("token", "secret"), zap.String("long", strings.Repeat("x", 2_000)))
	logger.Error(strings.Repeat("é", 1_000))
	require.Equal(t, 3, logs.Len(), "what is logged elsewhere stays")
	require.Equal(t, "secret", logs.All()[1].ContextMap()["token"])

	chunks, _ := l.Take()
	require.Len(t, chunks, 1)
	lines, err := NewReader().Read(&chunks[0])
	require.NoError(t, err)
	require.Len(t, lines, 4)
	require.Equal(t, []string{"one", "two", "three"}, []string{lines[0].Text, lines[1].Text, lines[2].Text})
	require.JSONEq(t, `{"n":1,"took":"1s"}`, string(lines[0].Fields))
	require.JSONEq(t, `{"PASSWORD":"****","deep":{"list":[{"token":"****","n":12345678901234567}]}}`, string(lines[1].Fields))
	require.Regexp(t, `^{"fields_left_out_bytes":\d+}$`, string(lines[2].Fields))
	require.Len(t, lines[3].Text, 1_023)
	require.Equal(t, Error, lines[3].Level)
	require.NotContains(t, string(lines[1].Fields)+string(lines[2].Fields), "secret")
}

func TestAnAttemptIsDueAfterATimeOrAtItsEnd(t *testing.T) {
	t.Parallel()
	woken := 0
	m := NewMemory[int](Bounds{Kept: 1 << 20, Line: 1 << 10, Pending: 1 << 20, After: time.Minute}, func() { woken++ })
	first, second := m.NewLog(0), m.NewLog(0)
	first.Add(time.Now(), Info, "a", nil)
	second.Add(time.Now(), Info, "b", nil)
	require.Equal(t, 1, woken)
	require.Empty(t, m.Due(time.Now(), false, 10))
	require.InDelta(t, time.Minute, m.Next(time.Now()), float64(10*time.Second))
	second.End()
	require.Equal(t, 2, woken)
	require.Equal(t, []*Log[int]{second}, m.Due(time.Now(), false, 10))
	require.Equal(t, []*Log[int]{first}, m.Due(time.Now().Add(time.Hour), false, 10))
	require.Negative(t, m.Next(time.Now()))
	first.Take()
	first.Add(time.Now(), Info, "c", nil)
	require.Equal(t, []*Log[int]{first}, m.Due(time.Now(), true, 10))
}

func BenchmarkTee(b *testing.B) {
	m := NewMemory[int](Bounds{Kept: 512 << 10, Line: 16 << 10, Pending: 8 << 20, After: time.Second}, func() {})
	logger := Tee(zap.NewNop(), m.NewLog(0), Info, NewRedaction([]string{"password", "token", "secret"}))
	b.ReportAllocs()
	for b.Loop() {
		logger.Info("a line of usual length, from a handler", zap.Int("n", 1), zap.String("what", "a value"))
	}
}
