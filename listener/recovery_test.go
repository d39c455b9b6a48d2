package listener_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/listener/listenertest"
	"github.com/tasker-go/tasker/signal"
)

// Whatever the source does, once it works again the listener is connected, proven and
// subscribed within a bounded time, and every connection was followed by a catch-up.
func TestRecoveryProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		type act struct {
			what string
			wait time.Duration
		}
		acts := make([]act, rapid.IntRange(1, 12).Draw(rt, "acts"))
		for i := range acts {
			acts[i] = act{
				rapid.SampledFrom([]string{"down", "up", "mute", "loud", "hang", "flow", "break", "topics"}).Draw(rt, "act"),
				time.Duration(rapid.IntRange(0, 60_000).Draw(rt, "wait")) * time.Millisecond,
			}
		}
		var problem string
		synctest.Test(t, func(t *testing.T) {
			source := &listenertest.Source{}
			o := &owner{}
			l := over(source).Subscribe(config(), o.hooks())
			_ = l.Start(t.Context())
			topics := 0
			for i, a := range acts {
				switch a.what {
				case "down", "up":
					source.SetDown(a.what == "down")
				case "mute", "loud":
					source.SetMute(a.what == "mute")
				case "hang", "flow":
					source.SetHang(a.what == "hang")
				case "break":
					source.Break()
				case "topics":
					topics = i + 1
					ctx, cancel := context.WithTimeout(t.Context(), s)
					_ = l.SetTopics(ctx, []signal.Topic{signal.Topic(strings.Repeat("t", topics))})
					cancel()
				}
				after(a.wait)
			}
			source.SetDown(false)
			source.SetMute(false)
			source.SetHang(false)
			after(2 * time.Minute)
			open, connects, _ := source.Counts()
			switch {
			case !l.Snapshot().Proven || l.Snapshot().Pace != deploymode.PaceRelaxed:
				problem = "not proven again"
			case open != 1:
				problem = "connections are left open"
			case o.catchUps() < connects:
				problem = "a connection without a catch-up"
			case topics > 0 && !slices.Contains(source.Topics(), signal.Topic(strings.Repeat("t", topics))):
				problem = "the topics are lost"
			}
			_ = l.Stop(t.Context())
		})
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}
