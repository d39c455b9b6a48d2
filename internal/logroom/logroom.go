// Package logroom names the rooms of the daemons whose level of logging can be set apart, and
// reads such settings.
//
// What may not enter: loggers, which telemetry makes.
package logroom

import (
	"fmt"
	"slices"
	"strings"
)

// Names are the rooms, which their loggers are named after.
var Names = []string{"admission", "api", "auth", "breakers", "bridge", "engine", "queues", "sessions", "signals", "store", "sweeps", "telemetry", "worker"}

// Levels are those that can be set, from the least severe.
var Levels = []string{"debug", "info", "warn", "error"}

// Setting reads "room=level".
func Setting(text string) (room, level string, err error) {
	room, level, _ = strings.Cut(text, "=")
	return room, level, Check(room, level)
}

// Check refuses what is no room or no level.
func Check(room, level string) error {
	if !slices.Contains(Names, room) {
		return fmt.Errorf("invalid room %q: want one of %s", room, strings.Join(Names, ", "))
	}
	return CheckLevel(level)
}

// CheckLevel refuses what is no level.
func CheckLevel(level string) error {
	if !slices.Contains(Levels, level) {
		return fmt.Errorf("invalid log level %q: want %s", level, strings.Join(Levels, ", "))
	}
	return nil
}
