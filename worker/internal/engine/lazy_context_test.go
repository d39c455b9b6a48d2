package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A lazyContext must behave like a context of package context, whether its end was
// awaited before, after, or through a derived context.
func TestLazyContextIsAContext(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end        func(l *lazyContext)
		err, cause error
	}{
		"lease lost": {func(l *lazyContext) { l.end(ErrLeaseLost) }, context.Canceled, ErrLeaseLost},
		"shutdown":   {func(l *lazyContext) { l.end(ErrShutdown); l.end(context.Canceled) }, context.Canceled, ErrShutdown},
		"returned":   {func(l *lazyContext) { l.end(context.Canceled) }, context.Canceled, context.Canceled},
		"timeout": {func(l *lazyContext) { time.Sleep(time.Minute); synctest.Wait(); l.expire() },
			context.DeadlineExceeded, ErrTimeout},
	}
	for name, c := range ends {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", asked before: ", early), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					l := &lazyContext{}
					deadline := time.Now().Add(time.Minute)
					l.limit(deadline)
					got, ok := l.Deadline()
					require.True(t, ok)
					require.Equal(t, deadline, got)
					require.NoError(t, l.Err())
					require.NoError(t, l.why())
					if early {
						require.Nil(t, l.Value("anything"))
						require.NoError(t, context.Cause(l))
						select {
						case <-l.Done():
							t.Fatal("ended too early")
						default:
						}
					}
					c.end(l)
					require.ErrorIs(t, l.why(), c.cause)
					require.Equal(t, c.err, l.Err())
					child, cancel := context.WithTimeoutCause(l, time.Hour, errors.New("of its own"))
					defer cancel()
					for _, ctx := range []context.Context{l, child} {
						<-ctx.Done()
						require.Equal(t, c.err, ctx.Err())
						require.Equal(t, c.cause, context.Cause(ctx))
					}
				})
			})
		}
	}
}

// A handler whose context ended before the deadline has not timed out.
func TestTheFirstEndOfALazyContextCounts(t *testing.T) {
	t.Parallel()
	l := &lazyContext{}
	l.limit(time.Now().Add(-time.Second))
	l.end(ErrShutdown)
	require.False(t, l.expire())
	require.ErrorIs(t, context.Cause(l), ErrShutdown)
	require.Equal(t, context.Canceled, l.Err())
}
