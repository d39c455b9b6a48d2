// Package span reads times as templates and requests write them: lengths of time such as 90s,
// 1h30m and 2d, and moments such as 2026-01-31T09:00:00Z.
//
// What may not enter: clocks.
package span

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The bounds of a span: shorter or longer ones are a mistake.
const (
	minSpan = time.Millisecond
	maxSpan = 366 * 24 * time.Hour
)

// Parse reads a length of time, as ParseDelay does: from 1 ms to 366 days.
func Parse(text string) (time.Duration, error) {
	span, ok := ParseDelay(strings.TrimSpace(text))
	switch {
	case !ok:
		return 0, fmt.Errorf("%.32q is not a duration such as 90s, 1h30m or 2d", text)
	case span < minSpan || span > maxSpan:
		return 0, fmt.Errorf("%.32q is not from 1ms to 366d", text)
	}
	return span, nil
}

// The bounds of the times of an identity.
const (
	minWindow = time.Second
	maxWindow = 10 * 366 * 24 * time.Hour
)

// ParseWindow reads a duration with a unit, including days (7d), from minWindow to
// maxWindow.
func ParseWindow(text string) (time.Duration, bool) {
	d, ok := ParseDelay(text)
	return d, ok && d >= minWindow && d <= maxWindow
}

// ParseDelay reads a non-negative duration with a unit, including leading days of 24 hours
// (7d, 1d12h).
func ParseDelay(text string) (time.Duration, bool) {
	number, rest, inDays := strings.Cut(text, "d")
	if !inDays {
		number, rest = "0", text
	}
	days, err := strconv.ParseUint(number, 10, 16)
	if err != nil || inDays && rest == "" {
		return time.Duration(days) * 24 * time.Hour, err == nil // #nosec G115 -- 16 bits
	}
	d, err := time.ParseDuration(rest)
	return time.Duration(days)*24*time.Hour + d, err == nil && d >= 0 // #nosec G115 -- 16 bits
}

// seconds is the part of a moment before fractions of a second and the zone.
const seconds = len("2026-01-31T09:00:00")

// Moment reads a point in time by RFC 3339, whose T and Z may be lower-case. A text without a
// zone is refused: it is another moment for each of its readers.
func Moment(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, strings.ToUpper(text))
	// Package time also reads hours of one digit, and a comma in place of the point.
	if err != nil || text[len("2026-01-31T09")] != ':' || text[seconds] == ',' {
		return time.Time{}, fmt.Errorf("invalid time %.64q: want RFC 3339 with a zone, such as 2026-01-31T09:00:00Z", text)
	}
	return at.UTC(), nil
}
