package telemetry_test

import (
	"testing"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/internal/logroom"
	"github.com/tasker-go/tasker/internal/telemetry"
)

func TestEachRoomHasItsLevel(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	levels, err := telemetry.NewLevels("info", []string{"store=debug", "worker=error"})
	require.NoError(t, err)
	log := levels.Over(zap.New(core)).With(zap.String("template", "a"))
	said := func(name string) (list []string) {
		named := log
		if name != "" {
			named = log.Named(name)
		}
		named.Debug("debug")
		named.Info("info")
		named.Warn("warn")
		named.Error("error")
		for _, e := range logs.TakeAll() {
			list = append(list, e.Message)
		}
		return list
	}
	all := []string{"debug", "info", "warn", "error"}
	for name, want := range map[string][]string{
		"": all[1:], "engine": all[1:], "store": all, "worker": all[3:], "worker.store": all, "store.other": all, "worker.other": all[3:],
		"storehouse": all[1:],
	} {
		require.Equal(t, want, said(name), name)
	}

	require.Same(t, levels, telemetry.LevelsOf(log.Named("x").With(zap.Int("attempt", 1))))
	require.NoError(t, levels.Change("warn", map[string]string{"store": "", "api": "debug"}, func() {}))
	require.Equal(t, all[2:], said("store"))
	require.Equal(t, all, said("api"))
	require.Equal(t, all[3:], said("worker"), "what is not named stays")
	require.Equal(t, all[2:], said("worker.audit"), "no room hides the audit log")
	require.NoError(t, levels.Change("error", nil, func() { log.Named("api.audit").Warn("announced") }))
	require.Equal(t, []zapcore.Level{zapcore.WarnLevel}, []zapcore.Level{logs.TakeAll()[0].Level}, "by the levels before")
	require.NoError(t, levels.Change("warn", nil, func() {}))
	require.NoError(t, levels.Change("", map[string]string{"worker": "info"}, func() {}))
	level, rooms := levels.Now()
	require.Equal(t, "warn", level)
	require.Equal(t, map[string]string{"api": "debug", "worker": "info"}, rooms)

	require.NoError(t, levels.Configure("info", nil))
	require.Equal(t, all[1:], said("api"), "a configuration replaces all")
}

func TestWrongLevelsChangeNothing(t *testing.T) {
	t.Parallel()
	levels, err := telemetry.NewLevels("info", nil)
	require.NoError(t, err)
	require.ErrorContains(t, levels.Change("", map[string]string{"kitchen": "debug"}, func() {}), `invalid room "kitchen": want one of admission, api`)
	require.ErrorContains(t, levels.Change("", map[string]string{"kitchen": ""}, func() {}), `invalid room "kitchen"`)
	require.ErrorContains(t, levels.Change("", map[string]string{"api": "loud"}, func() {}), `invalid log level "loud": want debug, info, warn, error`)
	require.ErrorContains(t, levels.Change("loud", map[string]string{"api": "debug"}, func() {}), `"loud"`)
	require.ErrorContains(t, levels.Configure("info", []string{"api"}), `invalid log level ""`)
	level, rooms := levels.Now()
	require.Equal(t, "info", level)
	require.Empty(t, rooms)
	require.Nil(t, telemetry.LevelsOf(zap.NewNop()))
}

// TestLevelsChangeWhileTheyAreUsed: no change is lost.
func TestLevelsChangeWhileTheyAreUsed(t *testing.T) {
	t.Parallel()
	levels, err := telemetry.NewLevels("info", nil)
	require.NoError(t, err)
	log := levels.Over(zap.NewNop())
	var wg conc.WaitGroup
	for _, room := range logroom.Names {
		wg.Go(func() {
			log.Named(room).Info("used")
			if err := levels.Change("", map[string]string{room: "debug"}, func() {}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, rooms := levels.Now()
	require.Len(t, rooms, len(logroom.Names))
}
