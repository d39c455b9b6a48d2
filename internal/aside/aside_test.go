package aside

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/telemetry"
)

var (
	errRejected = errors.New("rejected")
	errAway     = errors.New("away")
)

func rejected(err error) bool { return errors.Is(err, errRejected) }

// clocked returns a Set whose clock the test moves.
func clocked(log *zap.Logger, metrics *telemetry.Metrics) (s *Set[int], pass func(d time.Duration)) {
	s = New[int]("test", log, metrics)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	return s, func(d time.Duration) { now = now.Add(d) }
}

func TestARowIsLeftOutForAGrowingTime(t *testing.T) {
	t.Parallel()
	s, pass := clocked(zap.NewNop(), nil)
	for try, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		want := time.Duration(seconds) * time.Second
		require.False(t, s.Reject(7, errRejected), "nothing has passed, so no row is to blame")
		require.Equal(t, want, s.Left(7), "rejection %d", try+1)
		require.Equal(t, []int{7}, s.Held())
		require.Equal(t, want, s.Next())
		pass(want)
		require.False(t, s.Holds(7), "it may be tried again")
		require.Empty(t, s.Held())
		require.True(t, s.Knows(7))
	}
	pass(most + time.Second)
	require.Empty(t, s.Held())
	require.False(t, s.Knows(7), "it was not found when it was due: others have handled it")
	require.Zero(t, s.Next())
}

func TestARowIsBlamedOnceOthersPass(t *testing.T) {
	t.Parallel()
	s, pass := clocked(zap.NewNop(), nil)
	s.Pass()
	pass(time.Second)
	for range 3 {
		require.False(t, s.Reject(7, errRejected), "what passed before the first rejection proves nothing")
		pass(time.Minute)
	}
	s.Pass(8)
	require.True(t, s.Reject(7, errRejected))
	require.False(t, s.Reject(9, errRejected), "the first rejection of another row")
	s.Pass(7)
	require.False(t, s.Knows(7))
	require.False(t, s.Reject(7, errRejected), "it has passed, and begins anew")
}

func TestRejectionsAreLoggedAndCounted(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.ErrorLevel)
	metrics := telemetry.Discard()
	s, pass := clocked(zap.New(core), metrics)
	s.Reject(7, errRejected, zap.String("callable", "pay"))
	pass(10 * time.Second)
	s.Reject(8, errRejected)
	require.InDelta(t, 2, testutil.ToFloat64(metrics.RowsSetAside.WithLabelValues("test")), 0)
	require.InDelta(t, 2, testutil.ToFloat64(metrics.RowsRejected.WithLabelValues("test")), 0)
	line := logs.All()[0].ContextMap()
	require.Equal(t, "pay", line["callable"])
	require.Equal(t, "test", line["flow"])
	require.EqualValues(t, 1, line["rejections"])
	require.Equal(t, 10*time.Second, s.Since())
	s.Pass(7)
	require.Zero(t, s.Since())
	require.InDelta(t, 1, testutil.ToFloat64(metrics.RowsSetAside.WithLabelValues("test")), 0)
}

func TestRowsBeyondTheBoundAreNotRemembered(t *testing.T) {
	t.Parallel()
	s, _ := clocked(zap.NewNop(), nil)
	for key := range maxKeys + 10 {
		s.Reject(key, errRejected)
	}
	require.Len(t, s.Held(), maxKeys)
	require.False(t, s.Knows(maxKeys+1))
}

// TestHalvesFindEveryCulprit: each innocent item passes exactly once, each culprit is alone
// exactly once, in the order of the items.
func TestHalvesFindEveryCulprit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 200).Draw(t, "items")
		culprits := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, min(n, maxCulprits-1), rapid.ID).Draw(t, "culprits")
		items := make([]int, n)
		for i := range items {
			items[i] = i
		}
		var passed, alone []int
		statements := 0
		err := Halves(items, errRejected, rejected, func(part []int) error {
			statements++
			for _, i := range part {
				if slices.Contains(culprits, i) {
					return fmt.Errorf("item %d: %w", i, errRejected)
				}
			}
			passed = append(passed, part...)
			return nil
		}, func(item int, why error) {
			if len(items) > 1 {
				require.ErrorContains(t, why, fmt.Sprintf("item %d:", item))
			}
			alone = append(alone, item)
		})
		require.NoError(t, err)
		slices.Sort(culprits)
		require.Equal(t, culprits, alone)
		require.Len(t, passed, n-len(culprits))
		require.True(t, slices.IsSorted(passed))
		require.LessOrEqual(t, statements, 2*9*len(culprits), "log2(200) levels, two statements each")
	})
}

// TestHalvesEndWhereTheStatementIsAtFault: they do not try every row of a large set.
func TestHalvesEndWhereTheStatementIsAtFault(t *testing.T) {
	t.Parallel()
	statements, alone := 0, 0
	err := Halves(make([]int, 1000), errRejected, rejected, func([]int) error { statements++; return errRejected },
		func(int, error) { alone++ })
	require.ErrorIs(t, err, errRejected)
	require.Equal(t, maxCulprits, alone)
	require.Less(t, statements, 60)
}

func TestHalvesEndWithTheDatabase(t *testing.T) {
	t.Parallel()
	statements := 0
	err := Halves(make([]int, 8), errRejected, rejected, func([]int) error { statements++; return errAway },
		func(int, error) { require.Fail(t, "no item was rejected") })
	require.ErrorIs(t, err, errAway)
	require.Equal(t, 1, statements)
	require.NoError(t, Halves(nil, errRejected, rejected, func([]int) error { return errAway }, func(int, error) {}))
}
