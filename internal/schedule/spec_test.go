package schedule_test

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the machine may have no zone data

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/schedule"
)

func parse(t testing.TB, expression, zone string) *schedule.Spec {
	t.Helper()
	s, err := schedule.Parse(expression, zone)
	require.NoError(t, err)
	return s
}

func moment(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

// written formats times in the schedule's zone.
func written(s *schedule.Spec, runs []time.Time) (texts []string) {
	for _, r := range runs {
		texts = append(texts, r.In(s.Zone()).Format("2006-01-02T15:04Z07:00"))
	}
	return texts
}

const (
	berlin   = "Europe/Berlin"       // an hour at two in the morning
	newYork  = "America/New_York"    // an hour at two
	lordHowe = "Australia/Lord_Howe" // half an hour at two
	saoPaulo = "America/Sao_Paulo"   // had an hour at midnight
	apia     = "Pacific/Apia"        // left out a day in 2011
)

func TestChangesOfTheClocks(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"Berlin, the hour is skipped": {"30 2 * * *", berlin, "2026-03-28T00:00:00+01:00",
			[]string{"2026-03-28T02:30+01:00", "2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"}},
		"Berlin, the hour comes twice": {"30 2 * * *", berlin, "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"}},
		"Berlin, asked in the second hour": {"30 2 * * *", berlin, "2026-10-25T02:10:00+01:00", []string{"2026-10-26T02:30+01:00"}},
		"Berlin, all in the gap are one": {"*/20 2 * * *", berlin, "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00+02:00", "2026-03-30T02:00+02:00"}},
		"Berlin, the gap and the hour after it": {"0,30 2-3 * * *", berlin, "2026-03-28T12:00:00+01:00",
			[]string{"2026-03-29T03:00+02:00", "2026-03-29T03:30+02:00", "2026-03-30T02:00+02:00"}},
		"Berlin, each minute of the hour once": {"*/20 2 * * *", berlin, "2026-10-24T12:00:00+02:00",
			[]string{"2026-10-25T02:00+02:00", "2026-10-25T02:20+02:00", "2026-10-25T02:40+02:00", "2026-10-26T02:00+01:00"}},
		"Berlin, every second hour":  {"0 */2 * * *", berlin, "2026-10-25T00:30:00+02:00", []string{"2026-10-25T02:00+02:00", "2026-10-25T04:00+01:00"}},
		"Berlin, hourly over a gap":  {"30 * * * *", berlin, "2026-03-29T01:00:00+01:00", []string{"2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"}},
		"Berlin, hourly both times":  {"30 * * * *", berlin, "2026-10-25T01:59:00+02:00", []string{"2026-10-25T02:30+02:00", "2026-10-25T02:30+01:00", "2026-10-25T03:30+01:00"}},
		"Berlin, @hourly both times": {"@hourly", berlin, "2026-10-25T01:59:00+02:00", []string{"2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"}},
		"Berlin, on Sundays only":    {"30 2 * * SUN", berlin, "2026-03-23T00:00:00+01:00", []string{"2026-03-29T03:00+02:00", "2026-04-05T02:30+02:00"}},
		"Berlin, @every":             {"@every 45m", berlin, "2026-03-29T01:30:00+01:00", []string{"2026-03-29T03:15+02:00", "2026-03-29T04:00+02:00"}},
		"New York, skipped":          {"15 2 * * *", newYork, "2026-03-07T12:00:00-05:00", []string{"2026-03-08T03:00-04:00", "2026-03-09T02:15-04:00"}},
		"New York, twice":            {"15 1 * * *", newYork, "2026-10-31T12:00:00-04:00", []string{"2026-11-01T01:15-04:00", "2026-11-02T01:15-05:00"}},
		"New York, hourly":           {"0 * * * *", newYork, "2026-11-01T00:30:00-04:00", []string{"2026-11-01T01:00-04:00", "2026-11-01T01:00-05:00", "2026-11-01T02:00-05:00"}},
		"New York, daily at noon":    {"0 12 * * *", newYork, "2026-03-07T12:00:00-05:00", []string{"2026-03-08T12:00-04:00", "2026-03-09T12:00-04:00"}},
		"Lord Howe, skipped":         {"15 2 * * *", lordHowe, "2026-10-03T12:00:00+10:30", []string{"2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"}},
		"Lord Howe, the gap's end":   {"30 2 * * *", lordHowe, "2026-10-03T12:00:00+10:30", []string{"2026-10-04T02:30+11:00", "2026-10-05T02:30+11:00"}},
		"Lord Howe, twice":           {"45 1 * * *", lordHowe, "2026-04-04T12:00:00+11:00", []string{"2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"}},
		"Lord Howe, not repeated":    {"15 1 * * *", lordHowe, "2026-04-04T12:00:00+11:00", []string{"2026-04-05T01:15+11:00", "2026-04-06T01:15+10:30"}},
		"Lord Howe, hourly both":     {"30 * * * *", lordHowe, "2026-04-05T01:00:00+11:00", []string{"2026-04-05T01:30+11:00", "2026-04-05T01:30+10:30", "2026-04-05T02:30+10:30"}},
		"Lord Howe, hourly over it":  {"0 * * * *", lordHowe, "2026-10-04T00:30:00+10:30", []string{"2026-10-04T01:00+10:30", "2026-10-04T03:00+11:00"}},
		"Sao Paulo, no midnight":     {"@daily", saoPaulo, "2018-11-03T12:00:00-03:00", []string{"2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"}},
		"Apia, no December 30th":     {"0 9 30 * *", apia, "2011-12-01T00:00:00-10:00", []string{"2011-12-31T00:00+14:00", "2012-01-30T09:00+14:00"}},
		"UTC":                        {"30 2 * * *", "UTC", "2026-03-28T02:30:00Z", []string{"2026-03-29T02:30Z", "2026-03-30T02:30Z"}},
		"leap day":                   {"0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", []string{"2104-02-29T00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, after := parse(t, tt.cron, tt.zone), moment(t, tt.after)
			require.Equal(t, tt.want, written(s, s.Runs(after, after, len(tt.want))))
		})
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"* * * * *", "0 0 1 1 *", "*/5 8-17 * * MON-FRI", " 0 12 * * ? ", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight",
		"@hourly", "@every 1s", "@every 1h30m", "@every 8784h", "0 0 29 2 *", "0 0 31 * MON",
		"*/60 */24 */31 */12 */7", "5, * * * *", "05 * * * *", "0 0 * * mon-sun", "0 0 l,lw * *", "0 0 * 2 MON#5"} {
		s, err := schedule.Parse(good, "UTC")
		require.NoError(t, err, good)
		require.False(t, s.First(time.Now()).IsZero(), good)
	}
	for bad, why := range map[string]string{
		"": "must not be empty", "  ": "must not be empty", strings.Repeat("0,", 200) + "0 * * * *": "at most 255 characters",
		"* * * *":       `invalid expression "* * * *": want 5 fields: minute, hour, day of the month, month, day of the week`,
		"0 * * * * *":   `invalid expression "0 * * * * *": want 5 fields`,
		"60 * * * *":    `invalid minute "60": want 0 to 59, a range, a list, or *`,
		"*/90 * * * *":  `invalid minute "*/90": want a step from 1 to 60`,
		"5/61 * * * *":  `invalid minute "5/61": want a step from 1 to 60`,
		"*/0 * * * *":   `invalid minute "*/0": want a step from 1 to 60`,
		"*/-5 * * * *":  `invalid minute "*/-5": want a step from 1 to 60`,
		"5/5/5 * * * *": `invalid minute "5/5/5": want a step from 1 to 60`,
		"5-1 * * * *":   `invalid minute "5-1": want a range that rises`,
		"1-5-7 * * * *": `invalid minute "1-5-7": want 0 to 59`,
		"*-5 * * * *":   `invalid minute "*-5": want 0 to 59`,
		"a * * * *":     `invalid minute "a": want 0 to 59`,
		"L * * * *":     `invalid minute "L": want 0 to 59`,
		", * * * *":     `invalid minute ",": want 0 to 59`,
		"1,70 * * * *":  `invalid minute "70": want 0 to 59`,
		"* 24 * * *":    `invalid hour "24": want 0 to 23, a range, a list, or *`,
		"* */25 * * *":  `invalid hour "*/25": want a step from 1 to 24`,
		"0 0 0 * *":     `invalid day of the month "0": want 1 to 31, L, L-3, 15W or LW, a range, a list, or *`,
		"0 0 32W * *":   `invalid day of the month "32W": want 1 to 31`,
		"0 0 W * *":     `invalid day of the month "W": want 1 to 31`,
		"0 0 L-31 * *":  `invalid day of the month "L-31": want 1 to 31`,
		"0 0 L-0 * *":   `invalid day of the month "L-0": want 1 to 31`,
		"0 0 */32 * *":  `invalid day of the month "*/32": want a step from 1 to 31`,
		"0 0 1-15W * *": `invalid day of the month "1-15W": want 1 to 31`,
		"0 0 MON * *":   `invalid day of the month "MON": want 1 to 31`,
		"0 0 1 13 *":    `invalid month "13": want 1 to 12 or a name such as JAN, a range, a list, or *`,
		"0 0 1 */13 *":  `invalid month "*/13": want a step from 1 to 12`,
		"0 0 1 JUNE *":  `invalid month "JUNE": want 1 to 12`,
		"* * * * 8":     `invalid day of the week "8": want 0 to 6, 7, a name such as MON, 5L or 5#3, a range, a list, or *`,
		"* * * * */8":   `invalid day of the week "*/8": want a step from 1 to 7`,
		"* * * * 5-0":   `invalid day of the week "5-0": want a range that rises`,
		"* * * * L":     `invalid day of the week "L": want 0 to 6`,
		"* * * * 8L":    `invalid day of the week "8L": want 0 to 6`,
		"* * * * 5#6":   `invalid day of the week "5#6": want 0 to 6`,
		"* * * * 5#0":   `invalid day of the week "5#0": want 0 to 6`,
		"* * * * 5#":    `invalid day of the week "5#": want 0 to 6`,
		"* * * * #3":    `invalid day of the week "#3": want 0 to 6`,
		"* * * * 15W":   `invalid day of the week "15W": want 0 to 6`,
		"@reboot":       `invalid expression "@reboot": want @hourly, @daily`,
		"@every":        "duration", "@every5m": "duration", "@every soon": "duration", "@every 0s": "whole seconds", "@every -5m": "whole seconds",
		"@every 1500ms": "whole seconds", "@every 1ns": "whole seconds", "@every 9000h": "whole seconds",
		"CRON_TZ=UTC * * * * *": "want the time zone in time_zone", "TZ=": "want the time zone in time_zone",
		"0 0 30 2 *": "never", "0 0 31 4,6,9,11 *": "never", "0 0 31W 4 *": "never", "0 0 L-30 2,4 *": "never",
	} {
		_, err := schedule.Parse(bad, "UTC")
		var told *schedule.ParseError
		require.ErrorAs(t, err, &told, bad)
		require.Equal(t, "cron", told.Field)
		require.Contains(t, told.Error(), why, bad)
	}
	for _, zone := range []string{"", "Local", "Mars/Olympus", "../etc/passwd", "/etc/localtime", "Europe/Berlin\x00", strings.Repeat("x", 65), "Europe"} {
		_, err := schedule.Parse("@daily", zone)
		var told *schedule.ParseError
		require.ErrorAs(t, err, &told, "%q", zone)
		require.Equal(t, "time_zone", told.Field)
	}
}

func TestEveryKeepsItsRhythm(t *testing.T) {
	t.Parallel()
	s := parse(t, "@every 5m", "UTC")
	now := moment(t, "2026-03-21T10:00:00Z").Add(123 * time.Millisecond)
	require.Equal(t, moment(t, "2026-03-21T10:05:00Z"), s.First(now))
	run := moment(t, "2026-03-21T10:05:00Z")
	require.Equal(t, run, s.After(run, now), "it has not run yet")
	require.Equal(t, moment(t, "2026-03-21T10:10:00Z"), s.After(run, run))
	require.Equal(t, moment(t, "2026-03-21T11:00:00Z"), s.After(run, moment(t, "2026-03-21T10:57:12Z")), "a late look does not move it")
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"30 2 * * *", "@every 5m", "*/7 1-5/2,9 ? JAN-MAR MON", "0 0 29 2 *", "0 0 L-3,15W,LW * 5L,5#3,MON-SUN", "TZ=", "@every", "9999999999999999999 * * * *", "*/9223372036854775807 * * * *"} {
		f.Add(text, "Europe/Berlin")
	}
	f.Fuzz(func(t *testing.T, expression, zone string) {
		s, err := schedule.Parse(expression, zone)
		if err != nil {
			return
		}
		now := time.Date(2026, 3, 29, 0, 59, 59, 1, time.UTC)
		last := now
		for _, run := range s.Runs(s.First(now), now, 5) {
			if !run.After(last) || run.Nanosecond() != 0 {
				t.Fatalf("%q in %q: %s after %s", expression, zone, run, last)
			}
			last = run
		}
	})
}
