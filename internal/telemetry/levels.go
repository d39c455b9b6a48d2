package telemetry

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tasker-go/tasker/internal/logroom"
)

// Levels are the least severe levels that are logged: one for all, and others for rooms. They
// may change while loggers use them.
type Levels struct {
	changing sync.Mutex // one change at a time
	now      atomic.Pointer[levels]
}

// levels are those of one moment; they do not change.
type levels struct {
	all   string
	rooms map[string]string
	least zapcore.Level // of all rooms
	by    map[string]zapcore.Level
	base  zapcore.Level
}

// NewLevels returns levels as configured: that of all, and settings room=level.
func NewLevels(all string, rooms []string) (*Levels, error) {
	l := &Levels{}
	return l, l.Configure(all, rooms)
}

// Configure makes the levels those of a configuration; after an error the old ones stay.
func (l *Levels) Configure(all string, rooms []string) error {
	own := map[string]string{}
	for _, text := range rooms {
		room, level, err := logroom.Setting(text)
		if err != nil {
			return err
		}
		own[room] = level
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.set(all, own, func() {})
}

// Change changes the level of all (if it is not empty) and those of rooms; an empty one returns a
// room to that of all. After an error the old ones stay; announce is called before they go, so that
// what it logs is not hidden by the new ones.
func (l *Levels) Change(all string, rooms map[string]string, announce func()) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	before, own := l.Now()
	if all == "" {
		all = before
	}
	for room, level := range rooms {
		if level == "" {
			if err := logroom.Check(room, all); err != nil {
				return err
			}
			delete(own, room)
			continue
		}
		own[room] = level
	}
	return l.set(all, own, announce)
}

// Now returns the level of all, and those of the rooms that have their own.
func (l *Levels) Now() (all string, rooms map[string]string) {
	now := l.now.Load()
	return now.all, maps.Clone(now.rooms)
}

func (l *Levels) set(all string, rooms map[string]string, announce func()) error {
	if err := logroom.CheckLevel(all); err != nil {
		return err
	}
	base, err := zapcore.ParseLevel(all)
	if err != nil {
		return err
	}
	next := &levels{all: all, rooms: rooms, least: base, by: make(map[string]zapcore.Level, len(rooms)), base: base}
	for room, level := range rooms {
		if err := logroom.Check(room, level); err != nil {
			return err
		}
		if next.by[room], err = zapcore.ParseLevel(level); err != nil {
			return err
		}
		next.least = min(next.least, next.by[room])
	}
	announce()
	l.now.Store(next)
	return nil
}

// AuditLogger is the name of the logger of decisions about requests. No room hides its lines.
const AuditLogger = "audit"

// of returns the level of a logger: that of the last room in its name which has its own.
func (l *levels) of(logger string) zapcore.Level {
	if len(l.by) == 0 || strings.HasSuffix(logger, AuditLogger) {
		return l.base
	}
	for logger != "" {
		dot := strings.LastIndexByte(logger, '.')
		if level, ok := l.by[logger[dot+1:]]; ok {
			return level
		}
		logger = logger[:max(dot, 0)]
	}
	return l.base
}

// Over returns a logger of another one's lines that reach the levels.
func (l *Levels) Over(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return levelled{c, l} }))
}

// LevelsOf returns the levels of a logger; nil if it has none that can be changed.
func LevelsOf(log *zap.Logger) *Levels {
	if c, ok := log.Core().(levelled); ok {
		return c.levels
	}
	return nil
}

// levelled is a core behind levels.
type levelled struct {
	zapcore.Core
	levels *Levels
}

// Enabled implements zapcore.LevelEnabler, for the rooms together.
func (c levelled) Enabled(level zapcore.Level) bool {
	return level >= c.levels.now.Load().least && c.Core.Enabled(level)
}

// With implements zapcore.Core.
func (c levelled) With(fields []zapcore.Field) zapcore.Core {
	return levelled{c.Core.With(fields), c.levels}
}

// Check implements zapcore.Core.
func (c levelled) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level < c.levels.now.Load().of(e.LoggerName) {
		return to
	}
	return c.Core.Check(e, to)
}
