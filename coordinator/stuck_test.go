package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/coordinator"
	"github.com/tasker-go/tasker/deploymode"
	"github.com/tasker-go/tasker/internal/command"
	"github.com/tasker-go/tasker/internal/lifecycle"
)

// stuck names the loops of a system that only a restart of the process would revive.
func stuck(h coordinator.Health) (names []string) {
	loops := []lifecycle.LoopHealth{h.Loop, h.Poller.Loop}
	if h.Listener != nil {
		loops = append(loops, h.Listener.Loop)
	}
	for _, l := range loops {
		if l.Stuck {
			names = append(names, l.Name)
		}
	}
	return names
}

func TestALoopThatNeverComesRoundIsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		sys := coordinator.New(config(deploymode.PollingOnly, nil), lookFunc(
			func(context.Context, coordinator.Wake) (coordinator.Outcome, error) { // ignores its context
				<-hang
				return coordinator.Outcome{NextDue: coordinator.NoDue}, nil
			}))
		require.NoError(t, sys.Start(t.Context()))
		after(4*time.Minute - s)
		require.Empty(t, stuck(sys.Health()), "it may still be the database")
		after(2 * s)
		require.Equal(t, []string{"sys-looker"}, stuck(sys.Health()), "the poller comes round")
		close(hang)
		synctest.Wait()
		require.Empty(t, stuck(sys.Health()))
		require.NoError(t, sys.Stop(t.Context()))
	})
}

// TestADatabaseThatHangsIsNoDeadLoop: its calls end with their deadlines, one after
// the other, and each has waited for the call of another system.
func TestADatabaseThatHangsIsNoDeadLoop(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.Hybrid, deploymode.EventDrivenOnly, deploymode.PollingOnly} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := command.NewProcessor(command.Config{Name: "commands", Kinds: []command.Kind{{Name: "sys-look", Workers: 1, Buffer: 10}}})
				require.NoError(t, p.Start(t.Context()))
				shared := func(c *coordinator.Config) { c.Processor = p }
				worlds := []*world{launch(t, mode, shared), launch(t, mode, shared)}
				for _, w := range worlds {
					w.settled()
					w.board.hold(make(chan struct{})) // no call returns
					w.publish("a", 1)
				}
				for range 2 * time.Hour / (7 * s) {
					after(7 * s)
					for _, w := range worlds {
						require.Empty(t, stuck(w.Health()))
					}
				}
				for _, w := range worlds {
					require.Positive(t, w.Health().ConsecutiveErrors, "it was looked at again and again")
					w.board.hold(nil)
				}
				after(3 * time.Minute)
				for _, w := range worlds {
					require.Zero(t, w.board.left())
					require.NoError(t, w.Stop(t.Context()))
				}
				require.NoError(t, p.Stop(t.Context()))
			})
		})
	}
}

func TestNobodyIsStuckForWantOfWork(t *testing.T) {
	t.Parallel()
	for _, mode := range []deploymode.Mode{deploymode.EventDrivenOnly, deploymode.Disabled} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := launch(t, mode)
				after(24 * time.Hour)
				require.Empty(t, stuck(w.Health()))
			})
		})
	}
}

func TestASourceThatFailsIsNoDeadLoop(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(w *world){
		"refuses": func(w *world) { w.source.SetDown(true); w.source.Break() },
		"hangs":   func(w *world) { w.source.SetHang(true) },
		"mute":    func(w *world) { w.source.SetMute(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := launch(t, deploymode.Hybrid).settled()
				fail(w)
				for range 200 {
					after(31 * s)
					require.Empty(t, stuck(w.Health()))
				}
				require.False(t, w.Health().Listener.Proven)
				require.NoError(t, w.Stop(t.Context()))
			})
		})
	}
}
