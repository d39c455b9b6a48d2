package dedup

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/workflow"
)

func TestUntilWhenAnIdentityCounts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy       *workflow.IdentityPolicy
		context, key IdentityEnd
	}{
		"none":     {},
		"window":   {&workflow.IdentityPolicy{Window: "24h"}, IdentityEnd{After: 24 * time.Hour}, IdentityEnd{After: 24 * time.Hour}},
		"lifetime": {&workflow.IdentityPolicy{KeyLifetime: "7d"}, IdentityEnd{}, IdentityEnd{After: 7 * 24 * time.Hour}},
		"both":     {&workflow.IdentityPolicy{Window: "1h", KeyLifetime: "2d"}, IdentityEnd{After: time.Hour}, IdentityEnd{After: 48 * time.Hour}},
		"calendar": {&workflow.IdentityPolicy{Calendar: workflow.CalendarHour}, IdentityEnd{Calendar: workflow.CalendarHour, TimeZone: "UTC"}, IdentityEnd{Calendar: workflow.CalendarHour, TimeZone: "UTC"}},
		"zone": {&workflow.IdentityPolicy{Calendar: workflow.CalendarDay, TimeZone: "Asia/Tokyo", KeyLifetime: "1h"},
			IdentityEnd{Calendar: workflow.CalendarDay, TimeZone: "Asia/Tokyo"}, IdentityEnd{After: time.Hour}},
	} {
		require.Equal(t, tt.context, EndOf(tt.policy, false), name)
		require.Equal(t, tt.key, EndOf(tt.policy, true), name)
	}
	require.Equal(t, workflow.IdentityStrict, StrategyOf(nil))
	require.Equal(t, workflow.IdentityStrict, StrategyOf(&workflow.IdentityPolicy{Window: "1h"}))
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

// What is stored must never change: an identity computed by an earlier version
// has to find its task.
func TestIdentitiesNeverChange(t *testing.T) {
	id, err := ContextIdentity("payments", "refund", json.RawMessage(`{"b": [1.50, "x\n", null], "a": {"ä": true}}`))
	require.NoError(t, err)
	require.Equal(t, "d32679eb686e2cdddfc705ab36900789", fmt.Sprintf("%x", id))
	require.Equal(t, "45af7826961eaeb7fe0e7ef05ef5b938", fmt.Sprintf("%x", KeyIdentity("payments", "refund", strings.Repeat("k", 300))))
}

func TestIdentity(t *testing.T) {
	id := func(ns, name, ctx string) Identity {
		h, err := ContextIdentity(ns, name, json.RawMessage(ctx))
		require.NoError(t, err)
		return h
	}
	require.Equal(t, id("a", "b", `{"x":1,"y":[2]}`), id("a", "b", ` {"y":[2.0], "x":1}`), "order and spelling do not matter")
	require.NotEqual(t, id("a", "b", `{"x":1}`), id("a", "b", `{"x":2}`))
	require.NotEqual(t, id("ab", "c", `{}`), id("a", "bc", `{}`))
	require.NotEqual(t, id("a", "b", `{"x":9007199254740993}`), id("a", "b", `{"x":9007199254740992}`), "money keeps its last digit")
	require.NotEqual(t, KeyIdentity("a", "b", `{}`), id("a", "b", `{}`), "a key is not a context")
}
