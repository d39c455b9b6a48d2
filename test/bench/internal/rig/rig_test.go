package rig

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	s, err := parseStat("42 (post ) gres) S 7 42 42 0 -1 4194560 100 0 0 0 150 50 30 20 20 0 1 0 9 1 1")
	require.NoError(t, err)
	require.Equal(t, procStat{parent: 7, own: 2 * time.Second, children: 500 * time.Millisecond}, s)
	for _, bad := range []string{"", "42 (x) S 1 2", "42 (x) S x 42 42 0 -1 4194560 100 0 0 0 150 50 30 20 20"} {
		_, err := parseStat(bad)
		require.Error(t, err, bad)
	}
}

func TestParsePeak(t *testing.T) {
	t.Parallel()
	mb, err := parseMemory("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n", "VmHWM:")
	require.NoError(t, err)
	require.InDelta(t, 2, mb, 1e-9)
	_, err = parseMemory("Name:\tx\n", "VmHWM:")
	require.Error(t, err)
}

func TestOwnProcess(t *testing.T) {
	t.Parallel()
	_, err := CPU(os.Getpid())
	require.NoError(t, err)
	mb, err := PeakMB(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, mb)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	m := ParseMetrics("# HELP a b\n# TYPE a counter\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4.5\nab 1e3\nbroken\n\n")
	require.InDelta(t, 7.5, m.Sum("a"), 1e-9)
	require.InDelta(t, 3, m.Sum("a", `x="1"`, `y="2"`), 1e-9)
	require.InDelta(t, 0, m.Sum("a", `x="1"`, `y="3"`), 1e-9)
	require.InDelta(t, 1000, m.Sum("ab"), 1e-9)
	require.True(t, m.Has("a"))
	require.False(t, m.Has("abc"))
}

func TestParseBusy(t *testing.T) {
	t.Parallel()
	busy, err := parseBusy("cpu  100 10 20 9999 888 5 5 60 7 7\ncpu0 1 2 3\n")
	require.NoError(t, err)
	require.Equal(t, Busy{Total: 1400 * time.Millisecond, Waited: 8880 * time.Millisecond, Stolen: 600 * time.Millisecond}, busy)
	_, err = parseBusy("nothing")
	require.Error(t, err)
}

func TestTimesBelow(t *testing.T) {
	t.Parallel()
	all := map[int]procStat{
		1: {own: time.Hour}, 2: {parent: 1, own: 1, children: 2}, 3: {parent: 2, own: 4}, 4: {parent: 3, own: 8, children: 16}, 5: {parent: 1, own: time.Hour}}
	require.EqualValues(t, 31, timesBelow(all, 2))
}

func TestSince(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	before := Busy{At: begin, Total: 10 * time.Second, Own: 5 * time.Second}
	after := Busy{At: begin.Add(10 * time.Second), Total: 25 * time.Second, Own: 15 * time.Second, Waited: 2 * time.Second, Stolen: time.Second}
	require.Equal(t, Shares{Own: 0.5, Others: 0.25, Waited: 0.1, Stolen: 0.05}, after.Since(before, 2))
	_, err := ReadBusy()
	require.NoError(t, err)
}
