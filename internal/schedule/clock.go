package schedule

import "time"

// The local time of a zone is represented as a time in UTC with the same digits. It rises
// with real time except for jumps: forward over a gap, backward before a repetition.

// longestRepetition bounds how far back transitions matter: clocks are never set back by
// more than a day.
const longestRepetition = 25 * time.Hour

// largestOffset is more than the largest offset of any zone from UTC.
const largestOffset = 26 * time.Hour

// offset is the difference of local time and UTC at t.
func (s *Spec) offset(t time.Time) time.Duration {
	_, seconds := t.In(s.zone).Zone()
	return time.Duration(seconds) * time.Second
}

// changed and changes are the limits of the time around t with an unchanged offset; zero
// where there is none.
func (s *Spec) changed(t time.Time) time.Time {
	begin, _ := t.In(s.zone).ZoneBounds()
	return begin
}

func (s *Spec) changes(t time.Time) time.Time {
	_, end := t.In(s.zone).ZoneBounds()
	return end
}

// shown is the local time at t.
func (s *Spec) shown(t time.Time) time.Time { return t.UTC().Add(s.offset(t)) }

// shownBy is the latest local time shown until t: later than the present one while a time
// is repeated.
func (s *Spec) shownBy(t time.Time) time.Time {
	latest := s.shown(t)
	for at := s.changed(t); !at.IsZero() && t.Sub(at) < longestRepetition; at = s.changed(at) {
		at = at.Add(-1)
		if before := s.shown(at); before.After(latest) {
			latest = before
		}
	}
	return latest
}

// reached is the first moment at which local time reaches shown or jumps over it.
func (s *Spec) reached(shown time.Time) time.Time {
	for at := shown.Add(-largestOffset); ; {
		moment, change := shown.Add(-s.offset(at)), s.changes(at)
		if moment.Before(at) {
			moment = at // the clocks jumped over it just then
		}
		if change.IsZero() || moment.Before(change) {
			return moment
		}
		at = change
	}
}

// nextOfHours is the next run of fields that name hours. Local times shown before are over,
// so nothing runs twice; skipped ones are reached at the end of the gap.
func (s *Spec) nextOfHours(t time.Time) time.Time {
	next := s.fields.next(s.shownBy(t))
	if next.IsZero() {
		return next
	}
	return s.reached(next)
}

// nextOfEveryHour is the next run of fields that name every hour: the next moment that
// shows a matching local time, for the first time or again.
func (s *Spec) nextOfEveryHour(t time.Time) time.Time {
	// from is the start of the search between two changes.
	for from, in := t, t; ; {
		offset, change := s.offset(in), s.changes(in)
		next := s.fields.next(from.UTC().Add(offset))
		if next.IsZero() {
			return next
		}
		if moment := next.Add(-offset); change.IsZero() || moment.Before(change) {
			return moment
		}
		from, in = change.Add(-1), change
	}
}
