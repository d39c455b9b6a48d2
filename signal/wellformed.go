package signal

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrMalformed is wrapped by the errors of Validate.
var ErrMalformed = errors.New("malformed signal")

// Validate reports whether t can be the name of a PostgreSQL channel.
func (t Topic) Validate() error {
	switch {
	case t == "":
		return fmt.Errorf("%w: empty topic", ErrMalformed)
	case len(t) > MaxTopicBytes:
		return fmt.Errorf("%w: topic of %d bytes (at most %d)", ErrMalformed, len(t), MaxTopicBytes)
	case !isText(string(t)):
		return fmt.Errorf("%w: topic %q is not text that PostgreSQL accepts", ErrMalformed, string(t))
	}
	return nil
}

// Validate reports whether every transport can carry s.
func (s Signal) Validate() error {
	if err := s.Topic.Validate(); err != nil {
		return err
	}
	switch {
	case len(s.Payload) > MaxPayloadBytes:
		return fmt.Errorf("%w: payload of %d bytes (at most %d)", ErrMalformed, len(s.Payload), MaxPayloadBytes)
	case !isText(s.Payload):
		return fmt.Errorf("%w: payload on %q is not text that PostgreSQL accepts", ErrMalformed, string(s.Topic))
	}
	return nil
}

// isText reports whether PostgreSQL accepts s as text: UTF-8 without zero bytes.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
