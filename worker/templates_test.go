package worker

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tasker-go/tasker/signal"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestLoadTemplates(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), oneYAML)
	write(t, filepath.Join(dir, "below", "b.yml"), chainYAML)
	write(t, filepath.Join(dir, "README.md"), "no template")
	w := newTestWorker(t)
	require.NoError(t, w.LoadTemplates(dir))
	require.Len(t, w.templates, 2)
	require.ErrorContains(t, w.LoadTemplates(filepath.Join(dir, "a.yaml")), "already registered")

	write(t, filepath.Join(dir, "bad.yaml"), "name: x\nsteps: 5\n")
	write(t, filepath.Join(dir, "worse.json"), "{")
	err := newTestWorker(t).LoadTemplates(dir)
	require.ErrorContains(t, err, "bad.yaml:2")
	require.ErrorContains(t, err, "worse.json", "every file is read")
}

func TestTemplatesAreRegisteredAtStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.WarnLevel)
		r := newRig(t, Config{Logger: zap.New(core)}, says("x"))
		r.cfg.Namespaces = nil // those of the templates
		require.NoError(t, r.RegisterTemplate(templateOf(t, oneYAML)))
		require.NoError(t, r.RegisterTemplate(templateOf(t, chainYAML)))
		r.start(t)
		require.Equal(t, 1, r.board.number(func(b *fakeBoard) int { return b.registers }))
		require.Equal(t, []string{"tests"}, r.Health().Namespaces)
		require.Contains(t, r.sent.topics(), signal.TopicControl, "the change is signalled")
		missing := logs.FilterMessageSnippet("no handler").All()
		require.Len(t, missing, 4, "the steps of the other template")
		require.ErrorContains(t, r.RegisterTemplate(templateOf(t, diamondYAML)), "has already been started")
		r.stop(t)
	})
}

func TestStartNeedsNamespaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{}, says("x"))
		r.cfg.Namespaces = nil
		require.ErrorContains(t, r.Start(t.Context()), "no namespaces")
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Mode: "Sometimes", EventSourceName: "pigeon", Prefetch: -1, Lease: 1, HeartbeatInterval: 5,
		Namespaces: []string{""}})
	for _, want := range []string{"DatabaseURL", "Sometimes", "pigeon", "Prefetch", "Lease 1ns", "HeartbeatInterval", "namespace"} {
		require.ErrorContains(t, err, want)
	}
	w, err := New(Config{DatabaseURL: "x", Namespaces: []string{"b", "*", "a", "b"}})
	require.NoError(t, err)
	require.True(t, w.cfg.Every)
	require.Less(t, 3*w.cfg.HeartbeatInterval, w.cfg.Lease)
}
