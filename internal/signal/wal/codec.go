package wal

import (
	"bytes"
	"fmt"

	"github.com/tasker-go/tasker/signal"
)

// separator stands between topic and payload in the encoded form. PostgreSQL allows a
// zero byte in neither, so no escaping is needed.
const separator = 0

// maxEncodedBytes bounds the result of Encode and the input of Decode.
const maxEncodedBytes = signal.MaxTopicBytes + 1 + signal.MaxPayloadBytes

// Encode returns the bytes of s for transports that carry bytes: the topic, a
// zero byte, the payload.
func Encode(s signal.Signal) ([]byte, error) {
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
func Decode(b []byte) (signal.Signal, error) {
	if len(b) > maxEncodedBytes {
		return signal.Signal{}, fmt.Errorf("%w: %d bytes (at most %d)", signal.ErrMalformed, len(b), maxEncodedBytes)
	}
	topic, payload, found := bytes.Cut(b, []byte{separator})
	if !found {
		return signal.Signal{}, fmt.Errorf("%w: no separator in %d bytes", signal.ErrMalformed, len(b))
	}
	s := signal.Signal{Topic: signal.Topic(topic), Payload: string(payload)}
	if err := s.Validate(); err != nil {
		return signal.Signal{}, err
	}
	return s, nil
}
