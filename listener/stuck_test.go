package listener_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/signal"
)

// deafSource connects while hang is open and ignores its context.
type deafSource struct{ hang chan struct{} }

func (deafSource) Name() string { return "deaf" }

func (d deafSource) Connect(ctx context.Context, _ []signal.Topic) (signal.Connection, error) {
	<-d.hang
	return nil, context.Cause(ctx)
}

func TestConnectingThatNeverEndsIsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := deafSource{make(chan struct{})}
		l := over(source).Subscribe(config(), (&owner{}).hooks())
		require.NoError(t, l.Start(t.Context()))
		time.Sleep(100 * s)
		require.False(t, l.Health().Loop.Stuck)
		time.Sleep(2 * s)
		require.True(t, l.Health().Loop.Stuck)
		close(source.hang)
		synctest.Wait()
		require.False(t, l.Health().Loop.Stuck, "it continues trying")
		require.NoError(t, l.Stop(t.Context()))
	})
}
