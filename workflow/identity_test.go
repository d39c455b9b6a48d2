package workflow

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestUntilWhenAnIdentityCounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy       *IdentityPolicy
		context, key IdentityEnd
	}{
		"none":     {},
		"window":   {&IdentityPolicy{Window: "24h"}, IdentityEnd{After: 24 * time.Hour}, IdentityEnd{After: 24 * time.Hour}},
		"lifetime": {&IdentityPolicy{KeyLifetime: "7d"}, IdentityEnd{}, IdentityEnd{After: 7 * 24 * time.Hour}},
		"both":     {&IdentityPolicy{Window: "1h", KeyLifetime: "2d"}, IdentityEnd{After: time.Hour}, IdentityEnd{After: 48 * time.Hour}},
		"calendar": {&IdentityPolicy{Calendar: CalendarHour}, IdentityEnd{Calendar: CalendarHour, TimeZone: "UTC"}, IdentityEnd{Calendar: CalendarHour, TimeZone: "UTC"}},
		"zone": {&IdentityPolicy{Calendar: CalendarDay, TimeZone: "Asia/Tokyo", KeyLifetime: "1h"},
			IdentityEnd{Calendar: CalendarDay, TimeZone: "Asia/Tokyo"}, IdentityEnd{After: time.Hour}},
	} {
		require.Equal(t, tt.context, tt.policy.End(false), name)
		require.Equal(t, tt.key, tt.policy.End(true), name)
	}
	require.Equal(t, IdentityStrict, (*IdentityPolicy)(nil).StrategyOrStrict())
	require.Equal(t, IdentityStrict, (&IdentityPolicy{Window: "1h"}).StrategyOrStrict())
}

// Key order and the version of the template do not change an identity; another namespace,
// template, key or kind does.
func TestIdentityIsOfNamespaceNameAndContent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOfN(rapid.String(), rapid.Int64(), 0, 6).Draw(t, "context")
		sorted, err := json.Marshal(object)
		require.NoError(t, err)
		shuffled := []byte{'{'}
		keys := make([]string, 0, len(object))
		for k := range object {
			keys = append(keys, k)
		}
		for i, k := range rapid.Permutation(keys).Draw(t, "order") {
			pair, err := json.Marshal(map[string]int64{k: object[k]})
			require.NoError(t, err)
			if i > 0 {
				shuffled = append(shuffled, " , "...)
			}
			shuffled = append(shuffled, pair[1:len(pair)-1]...)
		}
		shuffled = append(shuffled, '}')
		namespace, name := rapid.String().Draw(t, "namespace"), rapid.String().Draw(t, "name")
		one, err := ContextIdentity(namespace, name, sorted)
		require.NoError(t, err)
		other, err := ContextIdentity(namespace, name, shuffled)
		require.NoError(t, err)
		require.Equal(t, one, other)

		elsewhere, otherName := rapid.String().Draw(t, "namespace2"), rapid.String().Draw(t, "name2")
		different, err := ContextIdentity(elsewhere, otherName, sorted)
		require.NoError(t, err)
		require.Equal(t, namespace == elsewhere && name == otherName, one == different)

		key, otherKey := rapid.String().Draw(t, "key"), rapid.String().Draw(t, "key2")
		require.Equal(t, key == otherKey, KeyIdentity(namespace, name, key) == KeyIdentity(namespace, name, otherKey))
		require.NotEqual(t, one, KeyIdentity(namespace, name, string(sorted)), "a key that is the text of a context is not that context")
	})
}

func TestPriorityLevels(t *testing.T) {
	t.Parallel()
	want := []int{80, 60, 40, 20, 0, -20, -40, -60, -80, -100}
	for i, priority := range want {
		require.Equal(t, priority, PriorityOfLevel(i+1))
	}
	for p := MinPriority; p <= MaxPriority; p++ {
		level := LevelOfPriority(p)
		require.True(t, level >= MinPriorityLevel && level <= MaxPriorityLevel)
		require.LessOrEqual(t, PriorityOfLevel(level), p)
		require.True(t, level == MinPriorityLevel || p < PriorityOfLevel(level-1))
	}
}
