package submission

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The examples of RFC 7396, except those whose patch is no object.
func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ old, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":12345678901234567890,"b":1.10,"c":1e2}`, `{"d":0.1000}`, `{"a":12345678901234567890,"b":1.10,"c":1e2,"d":0.1000}`},
		{`{"a":"<&>"}`, `{}`, `{"a":"<&>"}`},
	} {
		e := ContextEdit{Patch: json.RawMessage(tt.patch)}
		got, err := e.Merge(json.RawMessage(tt.old))
		require.NoError(t, err)
		require.Equal(t, tt.want, string(got), "%s with %s", tt.old, tt.patch)
	}
	for _, none := range []ContextEdit{{}, {Context: json.RawMessage(`{}`), Patch: json.RawMessage(`{}`)}, {Patch: json.RawMessage(`[]`)},
		{Patch: json.RawMessage(`null`)}, {Patch: json.RawMessage(`{"a":`)}, {Context: json.RawMessage(`1`)}} {
		_, err := none.Merge(json.RawMessage(`{}`))
		require.ErrorAs(t, err, new(*InvalidError), "%s %s", none.Context, none.Patch)
	}
}

func TestContextChanges(t *testing.T) {
	t.Parallel()
	changes, more, err := ContextChanges(json.RawMessage(`{"a":1,"b":{"c":[1,2],"d/e~f":true},"same":1.0}`), json.RawMessage(`{"same":1.0,"b":{"c":[2]},"z":null}`), 10)
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, []ContextChange{
		{Path: "/a", Before: json.RawMessage(`1`)},
		{Path: "/b/c", Before: json.RawMessage(`[1,2]`), After: json.RawMessage(`[2]`)},
		{Path: "/b/d~1e~0f", Before: json.RawMessage(`true`)},
		{Path: "/z", After: json.RawMessage(`null`)},
	}, changes)
	changes, more, err = ContextChanges(json.RawMessage(`{"a":1,"b":2}`), json.RawMessage(`{}`), 1)
	require.NoError(t, err)
	require.True(t, more)
	require.Len(t, changes, 1)
	_, _, err = ContextChanges(json.RawMessage(`{`), json.RawMessage(`{}`), 1)
	require.Error(t, err)
}

// object draws an object of JSON values; nulls only on request, since a patch treats them as
// removal.
func object(depth int, nulls bool) *rapid.Generator[map[string]any] {
	values := []*rapid.Generator[any]{rapid.IntRange(0, 3).AsAny(), rapid.Bool().AsAny(), rapid.StringMatching(`[a-c~/]{0,2}`).AsAny(),
		rapid.SliceOfN(rapid.IntRange(0, 2), 0, 2).AsAny()}
	if nulls {
		values = append(values, rapid.Just[any](nil))
	}
	if depth > 0 {
		values = append(values, object(depth-1, nulls).AsAny())
	}
	return rapid.MapOfN(rapid.StringMatching(`[a-d~/]`), rapid.OneOf(values...), 0, 4)
}

// Without nulls, a patch made of the changes turns one context into the other; applying a
// patch twice equals applying it once; and there are no changes exactly between equal
// contexts.
func TestPatchesAndChangesAgree(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		encode := func(v any) json.RawMessage {
			doc, err := json.Marshal(v)
			require.NoError(t, err)
			return doc
		}
		before, after := object(2, false).Draw(t, "before"), object(2, false).Draw(t, "after")
		changes, more, err := ContextChanges(encode(before), encode(after), 1000)
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, string(encode(before)) == string(encode(after)), len(changes) == 0)

		patch := object(2, true).Draw(t, "patch")
		e := ContextEdit{Patch: encode(patch)}
		once, err := e.Merge(encode(before))
		require.NoError(t, err)
		twice, err := e.Merge(once)
		require.NoError(t, err)
		require.JSONEq(t, string(once), string(twice))

		towards := map[string]any{}
		for _, c := range changes {
			put(towards, c)
		}
		e.Patch = encode(towards)
		reached, err := e.Merge(encode(before))
		require.NoError(t, err)
		require.JSONEq(t, string(encode(after)), string(reached))
	})
}

// put adds a change to a patch.
func put(patch map[string]any, c ContextChange) {
	at, rest := patch, c.Path[1:]
	for {
		key, deeper := rest, ""
		for i := range rest {
			if rest[i] == '/' {
				key, deeper = rest[:i], rest[i+1:]
				break
			}
		}
		name := pointerUnescapes(key)
		if len(key) == len(rest) {
			at[name] = nil
			if c.After != nil {
				at[name] = c.After
			}
			return
		}
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at, rest = next, deeper
	}
}

func pointerUnescapes(key string) string {
	out := ""
	for i := 0; i < len(key); i++ {
		if key[i] == '~' {
			i++
			out += map[byte]string{'0': "~", '1': "/"}[key[i]]
			continue
		}
		out += string(key[i])
	}
	return out
}
