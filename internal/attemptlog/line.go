package attemptlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

// Level is how much a line matters.
type Level int8

// The levels, the least first.
const (
	Debug Level = iota
	Info
	Warn
	Error
)

var levelNames = [...]string{"debug", "info", "warn", "error"}

// String is the name of the level in JSON.
func (l Level) String() string {
	if l < Debug || l > Error {
		return fmt.Sprintf("Level(%d)", int8(l))
	}
	return levelNames[l]
}

// ParseLevel reads the name of a level.
func ParseLevel(name string) (Level, error) {
	for l, known := range levelNames {
		if strings.EqualFold(name, known) {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("invalid level %q: want debug, info, warn or error", name)
}

// Bits are the levels from l on, as a set: a bit of each.
func (l Level) Bits() int16 { return int16(1<<(Error+1) - 1<<max(l, Debug)) }

// Line is one line of an attempt.
type Line struct {
	Number int64 // from 0 on, within the attempt
	At     time.Time
	Level  Level
	Text   string
	Fields json.RawMessage // an object; nil: none
}

// stored is a line as the content of a chunk has it, one JSON object a line.
type stored struct {
	At     int64           `json:"t"` // microseconds since 1970
	Level  Level           `json:"l"`
	Text   string          `json:"m"`
	Fields json.RawMessage `json:"f,omitempty"`
}

// appendLine appends the stored form of a line. The fields are JSON without line breaks.
func appendLine(to []byte, at time.Time, level Level, text string, fields []byte) []byte {
	to = append(to, `{"t":`...)
	to = strconv.AppendInt(to, at.UnixMicro(), 10)
	to = append(to, `,"l":`...)
	to = strconv.AppendInt(to, int64(level), 10)
	to = append(to, `,"m":`...)
	to = appendText(to, text)
	if len(fields) > 2 { // more than {}
		to = append(append(to, `,"f":`...), fields...)
	}
	return append(to, '}', '\n')
}

// Chunk is some lines of an attempt in a row, as the database has them.
type Chunk struct {
	At      time.Time // of the first line, by the clock of the worker
	First   int64     `sql:"first_line"` // its number in the attempt, from 0 on
	Last    time.Time `sql:"last_at"`    // of the last line
	Lines   int
	Levels  int16  // the set of their levels
	Content []byte // compressed
}

// maxContent bounds what the content of a chunk is decompressed to, in bytes: a chunk has at most
// maxChunk, and one line more.
const maxContent = 4 << 20

// newEncoder returns what compresses the lines of a Memory.
func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(maxChunk), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) //nolint:forbidigo // the options are constants
	}
	return e
}

// Reader reads chunks. It is for one goroutine.
type Reader struct {
	decoder *zstd.Decoder
	raw     []byte // the content of the latest chunk
}

// NewReader returns a Reader.
func NewReader() *Reader {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxContent))
	if err != nil {
		panic(err) //nolint:forbidigo // the options are constants
	}
	return &Reader{decoder: d}
}

// Read returns the lines of a chunk. An error is of a chunk that this program cannot read, or that
// is larger than any worker writes.
func (r *Reader) Read(c *Chunk) ([]Line, error) {
	raw, err := r.decoder.DecodeAll(c.Content, r.raw[:0])
	if err != nil {
		return nil, fmt.Errorf("decompress the lines of an attempt: %w", err)
	}
	r.raw = raw
	lines := make([]Line, 0, c.Lines)
	for rest := raw; len(rest) > 0; {
		var one []byte
		one, rest, _ = bytes.Cut(rest, []byte{'\n'})
		var s stored
		if err := json.Unmarshal(one, &s); err != nil {
			return nil, fmt.Errorf("decode a line of an attempt: %w", err)
		}
		lines = append(lines, Line{Number: c.First + int64(len(lines)), At: time.UnixMicro(s.At).UTC(), Level: s.Level, Text: s.Text, Fields: s.Fields})
	}
	return lines, nil
}

const hexDigits = "0123456789abcdef"

// appendText appends a text as a JSON string. What is no UTF-8 becomes the replacement character.
func appendText(to []byte, s string) []byte {
	to = append(to, '"')
	begin := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= ' ' && b < utf8.RuneSelf && b != '"' && b != '\\' {
			i++
			continue
		}
		size := 1
		if b >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		to = append(to, s[begin:i]...)
		switch {
		case b == '"' || b == '\\':
			to = append(to, '\\', b)
		case b == '\n':
			to = append(to, '\\', 'n')
		case b == '\t':
			to = append(to, '\\', 't')
		case b < ' ':
			to = append(to, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		default:
			to = append(to, "\ufffd"...)
		}
		i += size
		begin = i
	}
	return append(append(to, s[begin:]...), '"')
}

// clip cuts a text to at most limit bytes, at a character.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = "…"
	cut := max(limit-len(mark), 0)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
