package schedule

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var zones = []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia", "Africa/Cairo", "Asia/Kathmandu", "UTC"}

// rule is an expression with its meaning, independent of the library.
type rule struct {
	text           string
	minutes, hours []int
	weekdays       []int // nil: all days
}

func (r *rule) names(shown time.Time) bool {
	return slices.Contains(r.minutes, shown.Minute()) && slices.Contains(r.hours, shown.Hour()) &&
		(r.weekdays == nil || slices.Contains(r.weekdays, int(shown.Weekday())))
}

func (r *rule) everyHour() bool { return len(r.hours) == 24 }

func drawRule(t *rapid.T) *rule {
	numbers := func(label string, most int) []int {
		list := rapid.SliceOfNDistinct(rapid.IntRange(0, most), 1, 4, rapid.ID[int]).Draw(t, label)
		slices.Sort(list)
		return list
	}
	text := func(list []int) string { return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ","), "[]") }
	r := &rule{minutes: numbers("minutes", 59)}
	hours, days := "*", "*"
	switch rapid.IntRange(0, 2).Draw(t, "hours are") {
	case 0:
		for h := range 24 {
			r.hours = append(r.hours, h)
		}
	case 1:
		r.hours = numbers("hours", 3) // where the clocks change
		hours = text(r.hours)
	default:
		r.hours = numbers("hours", 23)
		hours = text(r.hours)
	}
	if rapid.IntRange(0, 3).Draw(t, "days") == 0 {
		r.weekdays = numbers("weekdays", 6)
		days = text(r.weekdays)
	}
	r.text = text(r.minutes) + " " + hours + " * * " + days
	return r
}

// drawMoment draws a time, mostly near a clock change.
func drawMoment(t *rapid.T, s *Spec) time.Time {
	at := time.Unix(rapid.Int64Range(1262304000, 1893456000).Draw(t, "at"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
	if change := s.changes(at); !change.IsZero() && rapid.IntRange(0, 3).Draw(t, "near") > 0 {
		at = change.Add(time.Duration(rapid.Int64Range(int64(-30*time.Hour), int64(3*time.Hour)).Draw(t, "away")))
	}
	return at
}

func draw(t *rapid.T) (*Spec, *rule) {
	r := drawRule(t)
	s, err := Parse(r.text, rapid.SampledFrom(zones).Draw(t, "zone"))
	if err != nil {
		t.Fatalf("%s: %v", r.text, err)
	}
	return s, r
}

// walk finds the runs of two days by checking every minute: an hourly rule runs where local
// time matches; a rule that names hours runs where local time matches or has jumped over a
// match, unless it was shown before.
func walk(s *Spec, r *rule, after time.Time) (runs []time.Time) {
	var highest time.Time
	begin := after.Truncate(time.Minute).Add(-26 * time.Hour)
	for at := begin; at.Before(after.Add(48 * time.Hour)); at = at.Add(time.Minute) {
		shown, run := s.shown(at), false
		if highest.IsZero() {
			highest = shown.Add(-time.Minute)
		}
		if r.everyHour() {
			run = r.names(shown)
		} else {
			for c := highest.Add(time.Minute); !c.After(shown); c = c.Add(time.Minute) {
				run = run || r.names(c)
			}
		}
		if shown.After(highest) {
			highest = shown
		}
		if run && at.After(after) {
			runs = append(runs, at)
		}
	}
	return runs
}

// TestRunsAreThoseOfTheClocks compares the computed runs with a minute-by-minute walk.
func TestRunsAreThoseOfTheClocks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t)
		after := drawMoment(t, s)
		want := walk(s, r, after)
		got := s.Runs(after, after, len(want))
		for i := range want {
			if !got[i].Equal(want[i]) {
				t.Fatalf("%s in %s after %s: run %d is %s, the clocks say %s", r.text, s.zone, after.In(s.zone), i, got[i].In(s.zone), want[i].In(s.zone))
			}
		}
	})
}

// TestRunsRise: runs rise strictly, lie on whole minutes, and do not depend on when between
// two of them the next one is computed.
func TestRunsRise(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, r := draw(t)
		last := drawMoment(t, s)
		for _, run := range s.Runs(last, last, 30) {
			if !run.After(last) || run.Second()+run.Nanosecond() != 0 {
				t.Fatalf("%s: %s after %s", r.text, run, last)
			}
			between := last.Add(time.Duration(rapid.Int64Range(0, int64(run.Sub(last))-1).Draw(t, "between")))
			if again := s.After(last, between); !again.Equal(run) {
				t.Fatalf("%s: after %s comes %s, after %s comes %s", r.text, last, run, between, again)
			}
			last = run
		}
	})
}

// TestAFixedTimeRunsOnceADay: each day of the zone gets one run of a daily schedule, at its
// time, or at the end of the gap that contains it.
func TestAFixedTimeRunsOnceADay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minute, hour := rapid.IntRange(0, 59).Draw(t, "minute"), rapid.IntRange(0, 3).Draw(t, "hour")
		s, err := Parse(fmt.Sprintf("%d %d * * *", minute, hour), rapid.SampledFrom(zones).Draw(t, "zone"))
		if err != nil {
			t.Fatal(err)
		}
		if s.zone.String() == "Pacific/Apia" {
			t.Skip("left out a day")
		}
		at := drawMoment(t, s)
		runs := s.Runs(at, at, 60)
		for i, run := range runs {
			shown := s.shown(run)
			if shown.Hour() != hour || shown.Minute() != minute {
				if !run.Equal(s.changed(run)) {
					t.Fatalf("%d:%02d in %s ran at %s, where no gap ends", hour, minute, s.zone, run.In(s.zone))
				}
				if wanted := time.Date(shown.Year(), shown.Month(), shown.Day(), hour, minute, 0, 0, time.UTC); !wanted.Before(shown) {
					t.Fatalf("%s is not after %s", shown, wanted)
				}
			}
			if i == 0 {
				continue
			}
			if days := midnight(shown).Sub(midnight(s.shown(runs[i-1]))); days != 24*time.Hour {
				t.Fatalf("%d:%02d in %s ran at %s and next at %s", hour, minute, s.zone, runs[i-1].In(s.zone), run.In(s.zone))
			}
		}
	})
}

func midnight(t time.Time) time.Time { return t.Truncate(24 * time.Hour) }
