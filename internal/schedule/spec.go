package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Bounds of an expression.
const (
	MaxExpression = 255 // characters
	MaxZone       = 64  // characters
	MinEvery      = time.Second
	MaxEvery      = 366 * 24 * time.Hour
)

// Spec is a parsed schedule. It is immutable and safe for concurrent use.
type Spec struct {
	every  time.Duration // of @every; else 0
	fields *fields
	hourly bool // the hour field names every hour
	zone   *time.Location
}

// ParseError says which part of a specification is wrong, in words for its author.
type ParseError struct {
	Field   string // cron or time_zone
	Problem string
}

// Error implements error.
func (e *ParseError) Error() string { return e.Field + ": " + e.Problem }

// Parse reads a cron expression (five fields, @daily and the like, or @every
// with a duration) for a time zone by its IANA name. The error is a
// *ParseError.
func Parse(expression, zone string) (*Spec, error) {
	location, err := parseZone(zone)
	if err != nil {
		return nil, err
	}
	expression = strings.TrimSpace(expression)
	s := &Spec{zone: location}
	bad := func(format string, args ...any) (*Spec, error) {
		return nil, &ParseError{"cron", fmt.Sprintf(format, args...)}
	}
	switch {
	case expression == "":
		return bad("must not be empty")
	case len(expression) > MaxExpression:
		return bad("must have at most %d characters", MaxExpression)
	case strings.Contains(expression, "TZ="):
		return bad("invalid expression %q: want the time zone in time_zone", expression)
	case strings.HasPrefix(expression, "@every"):
		if s.every, err = parseEvery(strings.TrimPrefix(expression, "@every")); err != nil {
			return nil, err
		}
		return s, nil
	}
	if s.fields, err = parseFields(expression); err != nil {
		return nil, err
	}
	const allHours = 1<<24 - 1
	s.hourly = s.fields.hours == allHours
	if s.fields.next(time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return bad("no day has this date, so it would never run")
	}
	return s, nil
}

func parseZone(name string) (*time.Location, error) {
	if name == "" || name == "Local" || len(name) > MaxZone {
		return nil, &ParseError{"time_zone", "must be the name of a time zone, such as Europe/Berlin or UTC"}
	}
	location, err := time.LoadLocation(name)
	if err != nil {
		return nil, &ParseError{"time_zone", fmt.Sprintf("%q is not known", name)}
	}
	return location, nil
}

// parseEvery reads a duration of whole seconds: others would be rounded silently.
func parseEvery(text string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	switch {
	case err != nil || !strings.HasPrefix(text, " "):
		return 0, &ParseError{"cron", "@every needs a duration, such as @every 5m"}
	case d < MinEvery || d > MaxEvery || d%time.Second != 0:
		return 0, &ParseError{"cron", "the duration of @every must be whole seconds, from one second to 366 days"}
	}
	return d, nil
}

// Zone is the time zone.
func (s *Spec) Zone() *time.Location { return s.zone }

// First is the first run of a schedule that begins at now. A zero time, here
// and below, means that there is none.
func (s *Spec) First(now time.Time) time.Time { return s.After(now.Truncate(time.Second), now) }

// After is the first run after t of a schedule with a run at run, which only @every
// considers.
func (s *Spec) After(run, t time.Time) time.Time {
	switch {
	case s.every == 0 && s.hourly:
		return s.nextOfEveryHour(t)
	case s.every == 0:
		return s.nextOfHours(t)
	case t.Before(run):
		return run
	}
	periods := int64(t.Sub(run)/s.every) + 1
	return run.Add(time.Duration(periods) * s.every)
}

// Runs lists the next n runs after t.
func (s *Spec) Runs(run, t time.Time, n int) []time.Time {
	runs := make([]time.Time, 0, n)
	for len(runs) < n {
		if t = s.After(run, t); t.IsZero() {
			break
		}
		runs = append(runs, t)
	}
	return runs
}
