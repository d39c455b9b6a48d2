package telemetry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tasker-go/tasker/internal/wording"
)

// The log formats.
const (
	FormatAuto    = "auto"    // console on a terminal, json elsewhere
	FormatConsole = "console" // for reading
	FormatJSON    = "json"    // one object per line
)

// NewLogger returns a logger that writes to w, one line per entry and safe for
// concurrent use; lines of [AuditLogger] below warn are written within a second, and by Sync. level is debug, info, warn or error (empty: info); format is
// one of the formats above (empty: auto).
func NewLogger(level, format string, w io.Writer) (*zap.Logger, error) {
	if level == "" {
		level = "info"
	}
	lvl, err := zapcore.ParseLevel(strings.ToLower(level))
	if err != nil {
		return nil, fmt.Errorf("log level %q is none of debug, info, warn, error: %w", level, err)
	}
	terminal := isTerminal(w)
	var encoder zapcore.Encoder
	switch strings.ToLower(format) {
	case "", FormatAuto:
		if terminal {
			encoder = consoleEncoder(true)
		} else {
			encoder = jsonEncoder()
		}
	case FormatConsole:
		encoder = consoleEncoder(terminal)
	case FormatJSON:
		encoder = jsonEncoder()
	default:
		return nil, fmt.Errorf("log format %q is none of auto, console, json", format)
	}
	sink := zapcore.Lock(zapcore.AddSync(w))
	buffer := &zapcore.BufferedWriteSyncer{WS: sink, Size: auditBuffer, FlushInterval: auditWait}
	core := auditing{zapcore.NewCore(encoder, escaped{sink}, lvl), zapcore.NewCore(encoder.Clone(), escaped{buffer}, lvl), buffer}
	return zap.New(core, zap.ErrorOutput(sink)), nil
}

// escaped writes lines, each as a whole, whose foreign text deceives no reader of the log.
type escaped struct{ zapcore.WriteSyncer }

// Write implements zapcore.WriteSyncer.
func (e escaped) Write(line []byte) (int, error) {
	return wording.Escaping{To: e.WriteSyncer}.Write(line)
}

// What the audit log allowed is written together: there is a line for each request that
// changes something, and a system call for each would cost more than the check.
const (
	auditWait   = time.Second
	auditBuffer = 64 << 10
)

// auditing is a core whose audit lines below warn go through a buffer.
type auditing struct {
	zapcore.Core
	allowed zapcore.Core
	buffer  *zapcore.BufferedWriteSyncer
}

// With implements zapcore.Core.
func (c auditing) With(fields []zapcore.Field) zapcore.Core {
	return auditing{c.Core.With(fields), c.allowed.With(fields), c.buffer}
}

// Check implements zapcore.Core.
func (c auditing) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level < zapcore.WarnLevel && strings.HasSuffix(e.LoggerName, AuditLogger) {
		return c.allowed.Check(e, to)
	}
	return c.Core.Check(e, to)
}

// Sync implements zapcore.Core; it is called once, at the end.
func (c auditing) Sync() error { return errors.Join(c.buffer.Stop(), c.Core.Sync()) }

func jsonEncoder() zapcore.Encoder {
	return zapcore.NewJSONEncoder(encoderConfig(zapcore.LowercaseLevelEncoder))
}

func consoleEncoder(colour bool) zapcore.Encoder {
	levels := zapcore.CapitalLevelEncoder
	if colour {
		levels = zapcore.CapitalColorLevelEncoder
	}
	return zapcore.NewConsoleEncoder(encoderConfig(levels))
}

func encoderConfig(levels zapcore.LevelEncoder) zapcore.EncoderConfig {
	return zapcore.EncoderConfig{
		TimeKey:        "timestamp",
		LevelKey:       "level",
		NameKey:        "logger",
		MessageKey:     "message",
		StacktraceKey:  "stack",
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeLevel:    levels,
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}
}

// isTerminal holds for a character device, in practice a terminal (or /dev/null, where the
// format does not matter).
func isTerminal(w io.Writer) bool {
	f, ok := wording.Beneath(w).(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
