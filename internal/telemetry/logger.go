package telemetry

import (
	"fmt"
	"io"
	"os"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// The log formats.
const (
	FormatAuto    = "auto"    // console on a terminal, json elsewhere
	FormatConsole = "console" // for reading
	FormatJSON    = "json"    // one object per line
)

// NewLogger returns a logger that writes to w, one line per entry and safe for
// concurrent use. level is debug, info, warn or error (empty: info); format is
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
	return zap.New(zapcore.NewCore(encoder, sink, lvl), zap.ErrorOutput(sink)), nil
}

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
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
