package submission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatPeopleGive(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	before, after := now.Add(-time.Minute), now.Add(time.Minute)
	short, huge, negative := 1.5, 1e300, -0.1
	for name, tt := range map[string]struct {
		at    *time.Time
		delay *float64
		want  time.Duration
		wrong string
	}{
		"nothing": {}, "past": {at: &before}, "future": {at: &after, want: time.Minute}, "seconds": {delay: &short, want: 1500 * time.Millisecond},
		"too many": {delay: &huge, want: maxDelaySeconds * time.Second}, "negative": {delay: &negative, wrong: "negative"}, "both": {at: &after, delay: &short, wrong: "not both"},
	} {
		in, err := StartIn(tt.at, tt.delay, now)
		if tt.wrong != "" {
			var invalid *InvalidError
			require.ErrorAs(t, err, &invalid, name)
			require.ErrorContains(t, err, tt.wrong, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, tt.want, in, name)
	}
	in, err := DeadlineIn(nil, now)
	require.NoError(t, err)
	require.Zero(t, in)
	in, err = DeadlineIn(&after, now)
	require.NoError(t, err)
	require.Equal(t, time.Minute, in)
	_, err = DeadlineIn(&now, now)
	require.ErrorContains(t, err, "passed")
	id, err := OptionalUUID("x", nil)
	require.NoError(t, err)
	require.Nil(t, id)
}
