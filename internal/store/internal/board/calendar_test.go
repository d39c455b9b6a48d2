package board

import (
	"testing"
	"time"

	"github.com/tasker-go/tasker/internal/store/internal/plantest"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/workflow"
)

// nextBorder finds the end of the hour, day or week around an instant minute by minute:
// slow, but independent of clock changes.
func nextBorder(at time.Time, unit workflow.Calendar, zone *time.Location) time.Time {
	same := func(t time.Time) bool {
		a, b := at.In(zone), t.In(zone)
		sameDay := a.Year() == b.Year() && a.YearDay() == b.YearDay()
		switch unit {
		case workflow.CalendarHour:
			return sameDay && a.Hour() == b.Hour()
		case workflow.CalendarDay:
			return sameDay
		}
		ya, wa := a.ISOWeek()
		yb, wb := b.ISOWeek()
		return ya == yb && wa == wb
	}
	t := at.Truncate(time.Minute).Add(time.Minute)
	for same(t) {
		t = t.Add(time.Minute)
	}
	return t
}

// TestIdentitiesEndAtBordersOfTheCalendar: around changes of the clocks, the ends
// of years, and in zones with odd offsets.
func TestIdentitiesEndAtBordersOfTheCalendar(t *testing.T) {
	t.Parallel()
	pool := plantest.Open(t).Pool(t)
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		for _, day := range []time.Time{
			time.Date(2026, 3, 7, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 10, 3, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 24, 0, 0, 0, 0, time.UTC), time.Date(2026, 10, 31, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 12, 31, 0, 0, 0, 0, time.UTC),
		} {
			for minutes := 0; minutes < 36*60; minutes += 37 {
				at := day.Add(time.Duration(minutes)*time.Minute + 123*time.Millisecond)
				for _, unit := range []workflow.Calendar{workflow.CalendarHour, workflow.CalendarDay, workflow.CalendarWeek} {
					if unit != workflow.CalendarHour && minutes%5 > 0 {
						continue
					}
					var end time.Time
					require.NoError(t, pool.QueryRow(t.Context(), `select `+untilBorder+`at`+ofCalendar+
						` from (values ($1::timestamptz, $2::text, $3::text)) v(at, calendar, time_zone)`, at, string(unit), name).Scan(&end))
					require.True(t, end.After(at), "%s %s %s: %s", unit, name, at, end)
					if before, after := offset(at, zone), offset(end, zone); before == after {
						require.WithinDuration(t, nextBorder(at, unit, zone), end, 0, "%s %s %s", unit, name, at)
					} else { // a repeated or skipped hour counts as one
						require.WithinDuration(t, nextBorder(at, unit, zone), end, time.Hour, "%s %s %s", unit, name, at)
					}
				}
			}
		}
	}
}

func offset(t time.Time, zone *time.Location) int {
	_, seconds := t.In(zone).Zone()
	return seconds
}
