package client

import (
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/span"
)

const (
	zonedLayout = "2006-01-02T15:04:05.000000Z"
	naiveLayout = "2006-01-02T15:04:05.999999999"
)

// Time is an instant on the wire: UTC with exactly six fractional digits and
// a Z. Reading accepts any RFC 3339 text; one without a zone is an error.
type Time struct{ time.Time }

// MarshalText implements encoding.TextMarshaler.
func (t Time) MarshalText() ([]byte, error) { return []byte(t.UTC().Format(zonedLayout)), nil }

// MarshalJSON implements json.Marshaler in place of the embedded time.Time.
func (t Time) MarshalJSON() ([]byte, error) { return quoted(t.Time, `"`+zonedLayout+`"`) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Time) UnmarshalText(text []byte) (err error) {
	t.Time, err = span.Moment(string(text))
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Time) UnmarshalJSON(raw []byte) error { return unquoted(raw, t.UnmarshalText) }

// NaiveTime is an instant in UTC written without a zone, as in the readiness objects.
// Reading accepts that, and what [Time] accepts.
type NaiveTime struct{ time.Time }

// MarshalText implements encoding.TextMarshaler.
func (t NaiveTime) MarshalText() ([]byte, error) { return []byte(t.UTC().Format(naiveLayout)), nil }

// MarshalJSON implements json.Marshaler.
func (t NaiveTime) MarshalJSON() ([]byte, error) { return quoted(t.Time, `"`+naiveLayout+`"`) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *NaiveTime) UnmarshalText(text []byte) (err error) {
	if t.Time, err = time.Parse(naiveLayout, string(text)); err != nil {
		t.Time, err = span.Moment(string(text))
	}
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *NaiveTime) UnmarshalJSON(raw []byte) error { return unquoted(raw, t.UnmarshalText) }

func quoted(t time.Time, layout string) ([]byte, error) {
	const cut = 3 // package time appends nine digits of the second before it cuts those beyond the layout
	return t.UTC().AppendFormat(make([]byte, 0, len(layout)+cut), layout), nil
}

func unquoted(raw []byte, text func([]byte) error) error {
	if string(raw) == "null" {
		return nil
	}
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return fmt.Errorf("invalid time %.64s: want a text", raw)
	}
	return text(raw[1 : len(raw)-1])
}
