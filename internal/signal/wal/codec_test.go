package wal_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/signal/wal"
	"github.com/tasker-go/tasker/signal"
)

func TestDecodeRefuses(t *testing.T) {
	for name, b := range map[string][]byte{
		"nothing":          nil,
		"no separator":     []byte("tasker_tasks"),
		"no topic":         []byte("\x00payload"),
		"long topic":       []byte(strings.Repeat("t", signal.MaxTopicBytes+1) + "\x00"),
		"long payload":     []byte("t\x00" + strings.Repeat("p", signal.MaxPayloadBytes+1)),
		"zero in payload":  []byte("t\x00a\x00b"),
		"topic no UTF-8":   []byte("\xff\x00"),
		"payload no UTF-8": []byte("t\x00\xff"),
	} {
		if s, err := wal.Decode(b); !errors.Is(err, signal.ErrMalformed) {
			t.Errorf("%s: Decode = %+v, %v, want ErrMalformed", name, s, err)
		}
	}
}

func TestEncodeDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := signal.Signal{
			Topic:   signal.Topic(rapid.StringN(0, 70, -1).Draw(t, "topic")),
			Payload: rapid.StringN(0, 50, -1).Draw(t, "payload"),
		}
		b, err := wal.Encode(s)
		if valid := s.Validate(); (err == nil) != (valid == nil) {
			t.Fatalf("Encode = %v, Validate = %v", err, valid)
		}
		if err != nil {
			return
		}
		if got, err := wal.Decode(b); err != nil || got != s {
			t.Fatalf("Decode(Encode(%+v)) = %+v, %v", s, got, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("tasker_tasks\x00payload"))
	f.Add([]byte("tasker_control\x00"))
	f.Add([]byte("\x00\x00"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := wal.Decode(b)
		if err != nil {
			if !errors.Is(err, signal.ErrMalformed) {
				t.Fatalf("error %v is not ErrMalformed", err)
			}
			return
		}
		again, err := wal.Encode(s)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("Encode(Decode(%q)) = %q, %v", b, again, err)
		}
	})
}
