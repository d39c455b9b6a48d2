package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/schedule"
)

// meaning is what an expression names, written without reading it. everyHour says that it
// follows real time, as an expression for every hour does.
type meaning struct {
	cron      string
	minute    func(minute int) bool
	hour      func(hour int) bool
	day       func(day time.Time) bool
	everyHour bool
}

func anyNumber(int) bool      { return true }
func anyDay(time.Time) bool   { return true }
func lastDay(t time.Time) int { return time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day() }

func is(numbers ...int) func(int) bool {
	return func(n int) bool {
		for _, wanted := range numbers {
			if n == wanted {
				return true
			}
		}
		return false
	}
}

func between(least, most int) func(int) bool {
	return func(n int) bool { return least <= n && n <= most }
}
func each(step, from int) func(int) bool {
	return func(n int) bool { return n >= from && (n-from)%step == 0 }
}

func on(weekdays ...time.Weekday) func(time.Time) bool {
	return func(t time.Time) bool {
		for _, day := range weekdays {
			if t.Weekday() == day {
				return true
			}
		}
		return false
	}
}

func dated(days ...int) func(time.Time) bool {
	return func(t time.Time) bool { return is(days...)(t.Day()) }
}

func in(day func(time.Time) bool, months ...time.Month) func(time.Time) bool {
	return func(t time.Time) bool {
		for _, month := range months {
			if t.Month() == month {
				return day(t)
			}
		}
		return false
	}
}

func either(one, other func(time.Time) bool) func(time.Time) bool {
	return func(t time.Time) bool { return one(t) || other(t) }
}

func beforeLast(days int) func(time.Time) bool {
	return func(t time.Time) bool { return t.Day() == lastDay(t)-days }
}

func lastOf(weekday time.Weekday) func(time.Time) bool {
	return func(t time.Time) bool { return t.Weekday() == weekday && t.AddDate(0, 0, 7).Month() != t.Month() }
}

func nthOf(n int, weekday time.Weekday) func(time.Time) bool {
	return func(t time.Time) bool {
		return t.Weekday() == weekday && t.AddDate(0, 0, -7*(n-1)).Month() == t.Month() && t.AddDate(0, 0, -7*n).Month() != t.Month()
	}
}

// nearest is the day of work that is the fewest days from a day, in its month. From a Saturday
// the Friday is nearer, from a Sunday the Monday.
func nearest(wanted func(t time.Time) int) func(time.Time) bool {
	return func(t time.Time) bool {
		aim := wanted(t)
		if aim > lastDay(t) {
			return false
		}
		for distance := 0; ; distance++ {
			for _, day := range []int{aim - distance, aim + distance} {
				there := time.Date(t.Year(), t.Month(), day, 0, 0, 0, 0, time.UTC)
				if there.Month() == t.Month() && there.Weekday() != time.Saturday && there.Weekday() != time.Sunday {
					return t.Day() == day
				}
			}
		}
	}
}

func the(day int) func(time.Time) int { return func(time.Time) int { return day } }

const (
	sun, mon, tue, wed = time.Sunday, time.Monday, time.Tuesday, time.Wednesday
	thu, fri, sat      = time.Thursday, time.Friday, time.Saturday
	jan, feb, mar, apr = time.January, time.February, time.March, time.April
	sep, oct, nov, dec = time.September, time.October, time.November, time.December
)

var meanings = []meaning{
	{"* * * * *", anyNumber, anyNumber, anyDay, true},
	{"*/15 * * * *", each(15, 0), anyNumber, anyDay, true},
	{"7/20 * * * *", is(7, 27, 47), anyNumber, anyDay, true},
	{"*/60 * * * *", is(0), anyNumber, anyDay, true},
	{"*/45 * * * *", is(0, 45), anyNumber, anyDay, true},
	{"30 * * * *", is(30), anyNumber, anyDay, true},
	{"@hourly", is(0), anyNumber, anyDay, true},
	{"10-20/5,40 0-23 * * *", is(10, 15, 20, 40), anyNumber, anyDay, true},
	{"0 * * * 5-7", is(0), anyNumber, on(fri, sat, sun), true},
	{"0 * L * *", is(0), anyNumber, beforeLast(0), true},
	{"30 2 * * *", is(30), is(2), anyDay, false},
	{"0 0 * * *", is(0), is(0), anyDay, false},
	{"59 23 * * *", is(59), is(23), anyDay, false},
	{"*/20 1-3 * * *", is(0, 20, 40), between(1, 3), anyDay, false},
	{"0 */2 * * *", is(0), each(2, 0), anyDay, false},
	{"15 1/4 * * *", is(15), is(1, 5, 9, 13, 17, 21), anyDay, false},
	{"* 2 * * *", anyNumber, is(2), anyDay, false},
	{"0,30 0,1,2,3 * * *", is(0, 30), is(0, 1, 2, 3), anyDay, false},
	{"0 9-17 * * MON-FRI", is(0), between(9, 17), on(mon, tue, wed, thu, fri), false},
	{"@daily", is(0), is(0), anyDay, false},
	{"@midnight", is(0), is(0), anyDay, false},
	{"@weekly", is(0), is(0), on(sun), false},
	{"@monthly", is(0), is(0), dated(1), false},
	{"@yearly", is(0), is(0), in(dated(1), jan), false},
	{"0 12 * * 0", is(0), is(12), on(sun), false},
	{"0 12 * * 7", is(0), is(12), on(sun), false},
	{"0 12 * * 5-7", is(0), is(12), on(fri, sat, sun), false},
	{"0 12 * * MON-SUN", is(0), is(12), anyDay, false},
	{"0 12 * * sat-sun", is(0), is(12), on(sat, sun), false},
	{"0 12 * * 0-7", is(0), is(12), anyDay, false},
	{"0 12 * * 1-7/2", is(0), is(12), on(mon, wed, fri, sun), false},
	{"0 12 * * */2", is(0), is(12), on(sun, tue, thu, sat), false},
	{"0 12 * * 5/2", is(0), is(12), on(fri), false},
	{"0 12 * * 7/3", is(0), is(12), on(sun, wed, sat), false},
	{"0 12 * * TUE,7", is(0), is(12), on(tue, sun), false},
	{"0 12 13 * FRI", is(0), is(12), either(dated(13), on(fri)), false},
	{"0 12 */10 * ?", is(0), is(12), dated(1, 11, 21, 31), false},
	{"0 12 29 2 *", is(0), is(12), in(dated(29), feb), false},
	{"0 12 31 * *", is(0), is(12), dated(31), false},
	{"30 2 1-7 MAR,OCT,NOV *", is(30), is(2), in(dated(1, 2, 3, 4, 5, 6, 7), mar, oct, nov), false},
	{"0 12 1 */4 *", is(0), is(12), in(dated(1), jan, time.May, sep), false},
	{"0 12 1 dec-dec *", is(0), is(12), in(dated(1), dec), false},
	{"30 2 L * *", is(30), is(2), beforeLast(0), false},
	{"0 12 L-3 * *", is(0), is(12), beforeLast(3), false},
	{"0 12 L-30 * *", is(0), is(12), beforeLast(30), false},
	{"0 12 15W * *", is(0), is(12), nearest(the(15)), false},
	{"0 12 1W * *", is(0), is(12), nearest(the(1)), false},
	{"0 12 31W * *", is(0), is(12), nearest(the(31)), false},
	{"0 12 LW * *", is(0), is(12), nearest(lastDay), false},
	{"30 2 * * SUNL", is(30), is(2), lastOf(sun), false},
	{"30 2 * * 0#2", is(30), is(2), nthOf(2, sun), false},
	{"0 12 * * 5#5", is(0), is(12), nthOf(5, fri), false},
	{"0 12 1,L-1 APR,SEP 7#1,MON#3,5L", is(0), is(12), in(either(either(dated(1), beforeLast(1)),
		either(either(nthOf(1, sun), nthOf(3, mon)), lastOf(fri))), apr, sep), false},
}

// oracleZones are zones of every kind of change of the clocks, and two without.
var oracleZones = []string{berlin, newYork, lordHowe, saoPaulo, apia, "UTC", "Asia/Kathmandu", "Africa/Cairo", "Africa/Casablanca", "America/Havana",
	"Antarctica/Troll", "Asia/Beirut", "Europe/London", "Pacific/Chatham"}

// TestDaysOfExpressions compares the days of twelve years with what the expressions mean.
func TestDaysOfExpressions(t *testing.T) {
	t.Parallel()
	require.Len(t, meanings, 53)
	for _, m := range meanings {
		t.Run(m.cron, func(t *testing.T) {
			t.Parallel()
			s := parse(t, m.cron, "UTC")
			day := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
			for ; day.Year() < 2036; day = day.AddDate(0, 0, 1) {
				run := s.After(day, day.Add(-1))
				if runs := run.Before(day.AddDate(0, 0, 1)); runs != m.day(day) {
					t.Fatalf("%s: a run on it is %t", day.Format(time.DateOnly+" Mon"), runs)
				}
			}
		})
	}
}

// TestRunsOfExpressions looks at each minute around the changes of the clocks: 53 expressions
// in 14 zones.
func TestRunsOfExpressions(t *testing.T) {
	t.Parallel()
	require.Len(t, oracleZones, 14)
	for _, name := range oracleZones {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(name)
			require.NoError(t, err)
			for _, from := range stretches(zone) {
				minutes := clockOf(zone, from, 5*24*60)
				for i := range meanings {
					meanings[i].compare(t, parse(t, meanings[i].cron, name), minutes)
				}
			}
		})
	}
}

// stretches are the beginnings of the times that are looked at: before each of the last changes
// of the clocks, at the end of a February, and before the day that Samoa left out.
func stretches(zone *time.Location) []time.Time {
	list := []time.Time{time.Date(2028, time.February, 26, 0, 0, 0, 0, time.UTC), time.Date(2011, time.December, 28, 12, 0, 0, 0, time.UTC)}
	at := time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC)
	for range 4 {
		change, _ := at.In(zone).ZoneBounds()
		if change.Year() < 2005 { // a zero time, too
			break
		}
		list, at = append(list, change.UTC().Add(-60*time.Hour)), change.Add(-1)
	}
	return list
}

// shownMinute is a minute of real time, and what a clock shows in it. The days of minutes passed
// over are those of a gap.
type shownMinute struct {
	at    time.Time
	local time.Time // in UTC, with the digits of the clock
}

func clockOf(zone *time.Location, from time.Time, minutes int) (list []shownMinute) {
	for i := range minutes {
		at := from.Add(time.Duration(i) * time.Minute)
		there := at.In(zone)
		list = append(list, shownMinute{at, time.Date(there.Year(), there.Month(), there.Day(), there.Hour(), there.Minute(), 0, 0, time.UTC)})
	}
	return list
}

func (m *meaning) names(local time.Time) bool {
	return m.minute(local.Minute()) && m.hour(local.Hour()) && m.day(local)
}

// compare finds the runs minute by minute from the second day on: before it, highest is not
// known. A time that was shown before is not named again unless each hour is.
func (m *meaning) compare(t *testing.T, s *schedule.Spec, minutes []shownMinute) {
	t.Helper()
	const begin = 26 * 60
	highest, last := minutes[0].local.Add(-time.Minute), minutes[begin].at
	next := s.After(last, last)
	for _, minute := range minutes {
		run := false
		if m.everyHour {
			run = m.names(minute.local)
		}
		for highest.Before(minute.local) {
			highest = highest.Add(time.Minute)
			run = run || !m.everyHour && m.names(highest)
		}
		if !run || !minute.at.After(last) {
			continue
		}
		if !next.Equal(minute.at) {
			t.Fatalf("%q in %s: the next run is %s, the clocks say %s", m.cron, s.Zone(), next.In(s.Zone()), minute.at.In(s.Zone()))
		}
		next = s.After(next, next)
	}
	if end := minutes[len(minutes)-1].at; !next.After(end) {
		t.Fatalf("%q in %s: a run at %s, of which the clocks say nothing", m.cron, s.Zone(), next.In(s.Zone()))
	}
}
