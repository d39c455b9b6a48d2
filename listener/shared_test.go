package listener_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/listener"
	"github.com/tasker-go/tasker/listener/listenertest"
	"github.com/tasker-go/tasker/signal"
	"github.com/tasker-go/tasker/signal/mux"
)

func pair(t *testing.T, source signal.Source, apart time.Duration) (listeners []*listener.Listener, owners []*owner) {
	t.Helper()
	both := mux.New(source, mux.Config{BufferLimit: signal.DefaultBufferLimit})
	for _, id := range []string{"first", "second"} {
		cfg := config(both)
		cfg.ID, cfg.SystemID = id, id
		cfg.Topics = []signal.Topic{signal.Topic(id)}
		l, o := started(t, cfg)
		listeners, owners = append(listeners, l), append(owners, o)
		after(apart)
	}
	return listeners, owners
}

func contextFor(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestSharedConnectionGoesDeaf: both listeners detect it no later than a single one
// would, and both are proven again on one new connection.
func TestSharedConnectionGoesDeaf(t *testing.T) {
	t.Parallel()
	for apart := time.Duration(0); apart < interval; apart += 3700 * time.Millisecond {
		for dies := time.Duration(0); dies < interval; dies += 4300 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				source := &listenertest.Source{}
				listeners, owners := pair(t, source, apart)
				after(2*interval + dies)
				for _, l := range listeners {
					require.True(t, l.Snapshot().Proven)
				}
				source.SetMute(true)
				after(interval + threshold + time.Millisecond)
				for i, l := range listeners {
					require.False(t, l.Snapshot().Proven, "%s apart, dead after %s: listener %d is still proven", apart, dies, i)
				}
				source.SetMute(false)
				after(time.Minute)
				for i, l := range listeners {
					require.True(t, l.Snapshot().Proven)
					require.GreaterOrEqual(t, owners[i].catchUps(), 2)
				}
				open, _, _ := source.Counts()
				require.Equal(t, 1, open)
			})
		}
	}
}

// TestSharedRecoveryProperty is TestRecoveryProperty for two listeners that
// share a connection.
func TestSharedRecoveryProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		acts := rapid.SliceOfN(rapid.SampledFrom([]string{"down", "up", "mute", "loud", "hang", "flow", "break", "topics", "away"}), 1, 12).Draw(rt, "acts")
		waits := rapid.SliceOfN(rapid.IntRange(0, 60_000), len(acts), len(acts)).Draw(rt, "waits")
		apart := time.Duration(rapid.IntRange(0, 30_000).Draw(rt, "apart")) * time.Millisecond
		problem := ""
		synctest.Test(t, func(t *testing.T) {
			source := &listenertest.Source{}
			listeners, _ := pair(t, source, apart)
			for i, act := range acts {
				switch act {
				case "down", "up":
					source.SetDown(act == "down")
				case "mute", "loud":
					source.SetMute(act == "mute")
				case "hang", "flow":
					source.SetHang(act == "hang")
				case "break":
					source.Break()
				case "topics":
					_ = listeners[i%2].SetTopics(contextFor(t, s), []signal.Topic{signal.Topic(strings.Repeat("t", i+1))})
				case "away":
					require.NoError(t, listeners[1].Stop(contextFor(t, 2*time.Minute)))
				}
				after(time.Duration(waits[i]) * time.Millisecond)
			}
			source.SetDown(false)
			source.SetMute(false)
			source.SetHang(false)
			after(3 * time.Minute)
			for i, l := range listeners {
				if h := l.Health(); h.State != deploymode.Off && !h.Proven {
					problem = fmt.Sprintf("listener %d is not proven again: %+v", i, h)
				}
			}
			if open, _, _ := source.Counts(); open != 1 {
				problem = "not one connection is open"
			}
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}
