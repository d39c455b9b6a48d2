package daemon

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/internal/store"
)

// systemSettings are those of an event system that can change while it runs.
func systemSettings(c config.EventSystem) coordinator.Settings {
	return coordinator.Settings{Mode: c.DeploymentMode, PollInterval: c.Poller.Interval, RelaxedPollInterval: c.Poller.RelaxedInterval}
}

// introduce describes this process to the fleet.
func introduce(id, mode string) (store.Daemon, error) {
	instance, err := uuid.NewV7()
	if err != nil {
		return store.Daemon{}, fmt.Errorf("make an instance id: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return store.Daemon{}, fmt.Errorf("read the host name: %w", err)
	}
	if id == "" {
		id = host + "-" + instance.String()[24:]
	}
	return store.Daemon{UUID: instance, ID: id, Hostname: host, Version: version(), Mode: mode}, nil
}

// Version returns the version of the program: of its module, or else the commit that it
// was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

func unavailable(err error) bool { return errors.Is(err, store.ErrUnavailable) }
