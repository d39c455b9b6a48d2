package signal

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrMalformed is wrapped by every error of Validate, Encode and Decode.
var ErrMalformed = errors.New("malformed signal")

// separator stands between topic and payload in the encoded form. PostgreSQL allows a
// zero byte in neither, so no escaping is needed.
const separator = 0

// maxEncodedBytes bounds the result of Encode and the input of Decode.
const maxEncodedBytes = MaxTopicBytes + 1 + MaxPayloadBytes

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

// ValidateTopics returns the error of the first malformed topic.
func ValidateTopics(topics []Topic) error {
	for _, t := range topics {
		if err := t.Validate(); err != nil {
			return err
		}
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

// Encode returns the bytes of s for transports that carry bytes: the topic, a
// zero byte, the payload.
func Encode(s Signal) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(s.Topic)+1+len(s.Payload))
	b = append(b, s.Topic...)
	b = append(b, separator)
	return append(b, s.Payload...), nil
}

// Decode is the inverse of Encode: every accepted input is the encoding of the
// result. The result does not refer to b.
func Decode(b []byte) (Signal, error) {
	if len(b) > maxEncodedBytes {
		return Signal{}, fmt.Errorf("%w: %d bytes (at most %d)", ErrMalformed, len(b), maxEncodedBytes)
	}
	topic, payload, found := bytes.Cut(b, []byte{separator})
	if !found {
		return Signal{}, fmt.Errorf("%w: no separator in %d bytes", ErrMalformed, len(b))
	}
	s := Signal{Topic: Topic(topic), Payload: string(payload)}
	if err := s.Validate(); err != nil {
		return Signal{}, err
	}
	return s, nil
}

// isText reports whether PostgreSQL accepts s as text: UTF-8 without zero bytes.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
