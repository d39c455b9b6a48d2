package coordinator_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	settings "github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/signal/inproc"
	"github.com/tasker-go/tasker/signal"
)

// BenchmarkSignalToLook measures the way of one signal through an idle system: from
// the source's connection through the listener, the loop and, where there is one, the
// command processor, to Look.
func BenchmarkSignalToLook(b *testing.B) {
	b.Run("loop", func(b *testing.B) { benchmarkSignal(b, nil) })
	b.Run("processor", func(b *testing.B) {
		p := command.NewProcessor(command.Config{Name: "bench", Kinds: []command.Kind{{Name: "sys-look", Workers: 1, Buffer: 10}}})
		require.NoError(b, p.Start(b.Context()))
		benchmarkSignal(b, p)
		require.NoError(b, p.Stop(b.Context()))
	})
}

func benchmarkSignal(b *testing.B, p *command.Processor) {
	bus := inproc.New()
	looked := make(chan time.Time, 1)
	topic := signal.WorkerTopic("bench")
	defaults, err := settings.Defaults()
	require.NoError(b, err)
	cfg := coordinator.Configure(defaults.Orchestration.EventSystems.Orchestration)
	cfg.Listener, cfg.Topics, cfg.Processor = listening(bus), []signal.Topic{topic}, p
	s := coordinator.New(cfg, lookFunc(func(_ context.Context, w coordinator.Wake) (coordinator.Outcome, error) {
		if w.Reason == coordinator.ReasonSignal {
			looked <- time.Now()
		}
		return coordinator.Outcome{NextDue: coordinator.NoDue}, nil
	}))
	require.NoError(b, s.Start(b.Context()))
	require.Eventually(b, func() bool {
		h := s.Health()
		return h.Listener != nil && h.Listener.State == deploymode.Listening && h.CatchUpScans > 0
	}, 30*time.Second, time.Millisecond)
	looks := s.Health().Looks
	var took time.Duration
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		begin := time.Now()
		bus.Publish(signal.Signal{Topic: topic})
		took += (<-looked).Sub(begin)
		for looks++; s.Health().Looks < looks; { // idle again
			runtime.Gosched()
		}
	}
	b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/wake")
	b.StopTimer()
	require.NoError(b, s.Stop(b.Context()))
}
