package span

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour,
		"1ms": time.Millisecond, "366d": 366 * 24 * time.Hour, "0d5s": 5 * time.Second} {
		d, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "d", "0s", "0d", "-1s", "1d-1h", "5", "1h2d", "1.5d", "367d", "99999999999d", "2d2d", "forever", "1µs"} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

func TestWindowsHaveBounds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"1s": time.Second, "1h30m": 90 * time.Minute, "1d": 24 * time.Hour, "1d1h": 25 * time.Hour, "3660d": maxWindow} {
		got, ok := ParseWindow(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "1", "0s", "999ms", "-1h", "3661d", "99999999d", "1.5d", "-1d", "1h1d", "1d-1h", "d", "99999h", "week"} {
		_, ok := ParseWindow(text)
		require.False(t, ok, text)
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 1, 31, 9, 0, 0, 500_000_000, time.UTC)
	for _, text := range []string{"2026-01-31T09:00:00.5Z", "2026-01-31t09:00:00.5z", "2026-01-31T10:00:00.500+01:00", "2026-01-31t03:30:00.5-05:30"} {
		at, err := Moment(text)
		require.NoError(t, err, text)
		require.Equal(t, want, at, text)
	}
	for _, text := range []string{"", "tomorrow", "2026-01-31", "2026-01-31T09:00:00", "2026-01-31 09:00:00Z", "2026-01-31T09:00Z", "2026-01-31T9:00:00Z",
		"2026-01-31T09:00:00,5Z", "2026-01-31T09:00:00+0100", "2026-02-30T09:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T09:00:00 Z", " 2026-01-31T09:00:00Z",
		"2026-01-31T09:00:00Z\n", "2026-01-31T09:00:00+25:00", "1774087200", "t", "z"} {
		_, err := Moment(text)
		require.ErrorContains(t, err, "want RFC 3339 with a zone", text)
	}
}
