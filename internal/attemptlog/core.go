package attemptlog

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tasker-go/tasker/internal/redact"
)

// Redaction hides the values of fields by their names, at any depth.
type Redaction struct {
	names  map[string]bool
	within *regexp.Regexp // such a name in JSON; nil: there are none
}

// NewRedaction hides the fields of these names, in whatever case.
func NewRedaction(names []string) *Redaction {
	r := &Redaction{names: make(map[string]bool, len(names))}
	quoted := make([]string, 0, len(names))
	for _, name := range names {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			r.names[name] = true
			quoted = append(quoted, regexp.QuoteMeta(name))
		}
	}
	if len(quoted) > 0 {
		r.within = regexp.MustCompile(`(?i)"(?:` + strings.Join(quoted, "|") + `)"\s*:`)
	}
	return r
}

// Hides reports whether the value of a field is hidden.
func (r *Redaction) Hides(name string) bool {
	return len(r.names) > 0 && (r.names[name] || r.names[strings.ToLower(name)])
}

// JSON returns fields, a JSON object, with hidden values replaced. What is no JSON is hidden wholly.
func (r *Redaction) JSON(fields []byte) []byte {
	if r.within == nil || !r.within.Match(fields) {
		return fields
	}
	dec := json.NewDecoder(bytes.NewReader(fields))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return []byte(`{"fields":"` + redact.Mask + `"}`)
	}
	hidden, err := json.Marshal(r.hide(v))
	if err != nil {
		return []byte(`{"fields":"` + redact.Mask + `"}`)
	}
	return hidden
}

func (r *Redaction) hide(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if r.Hides(name) {
				v[name] = redact.Mask
			} else {
				v[name] = r.hide(inner)
			}
		}
	case []any:
		for i := range v {
			v[i] = r.hide(v[i])
		}
	}
	return v
}

// sink is a Log, whatever it is of.
type sink interface {
	Add(at time.Time, level Level, text string, fields []byte)
}

// core adds what is logged to a Log.
type core struct {
	zapcore.LevelEnabler
	log     sink
	hidden  *Redaction
	encoder zapcore.Encoder // with the fields of the logger
}

// encoding has no keys for what a line has apart.
var encoding = zapcore.EncoderConfig{StacktraceKey: "stacktrace", SkipLineEnding: true, EncodeDuration: zapcore.StringDurationEncoder,
	EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder}

// Tee returns a logger that also adds its lines to a log, from a level on.
func Tee[K any](logger *zap.Logger, to *Log[K], from Level, hidden *Redaction) *zap.Logger {
	own := &core{LevelEnabler: zapLevel(from), log: to, hidden: hidden, encoder: zapcore.NewJSONEncoder(encoding)}
	return logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return zapcore.NewTee(c, own) }))
}

func zapLevel(l Level) zapcore.Level { return zapcore.Level(l) - 1 }

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	with := *c
	with.encoder = c.encoder.Clone()
	for i := range fields {
		c.shown(fields[i]).AddTo(with.encoder)
	}
	return &with
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for i := range fields {
		if c.hidden.Hides(fields[i].Key) { // the others write the same slice
			shown := make([]zapcore.Field, len(fields))
			for j := range fields {
				shown[j] = c.shown(fields[j])
			}
			fields = shown
			break
		}
	}
	buf, err := c.encoder.EncodeEntry(e, fields)
	if err != nil {
		return err
	}
	defer buf.Free()
	c.log.Add(e.Time, LevelOf(e.Level), e.Message, c.hidden.JSON(buf.Bytes()))
	return nil
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

func (c *core) shown(f zapcore.Field) zapcore.Field {
	if c.hidden.Hides(f.Key) {
		return zapcore.Field{Key: f.Key, Type: zapcore.StringType, String: redact.Mask}
	}
	return f
}

// LevelOf is the level of a line that a logger writes.
func LevelOf(l zapcore.Level) Level {
	return Level(min(max(l+1, zapcore.Level(Debug)), zapcore.Level(Error)))
}
