package store_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/dedup"
	"github.com/tasker-go/tasker/internal/jsonscan"
)

// randomDocument draws a JSON document that jsonb can have.
func randomDocument(t *rapid.T, depth int) string {
	text := func() string {
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "key", " ", "/", "é", "€", "\ufb33", "😀", "\uffff", "\ue000", "\u2028", "\x7f",
			`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u001F`, `\u0041`, `\u20ac`, `\ud83d\ude00`}), 0, 4).Draw(t, "pieces")
		return `"` + strings.Join(pieces, "") + `"`
	}
	members := func(one func() string) string {
		var list []string
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			list = append(list, one())
		}
		return strings.Join(list, ", ")
	}
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 1:
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,20})?`).Draw(t, "number")
	case 2: // a double in more or fewer digits than it has
		f := rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "double")
		return strconv.FormatFloat(f, 'e', rapid.IntRange(-1, 30).Draw(t, "digits"), 64)
	case 3:
		return rapid.StringMatching(`-?[1-9](\.[0-9]{1,17})?`).Draw(t, "mantissa") + "e-" + rapid.SampledFrom([]string{"5", "6", "7", "15", "300", "308", "310", "323", "324", "400"}).Draw(t, "exponent")
	case 4:
		return text()
	case 5:
		return "[" + members(func() string { return randomDocument(t, depth-1) }) + "]"
	default:
		return "{" + members(func() string { return text() + ": " + randomDocument(t, depth-1) }) + "}"
	}
}

// The identity of a context is the same by SQL: what the database makes of a document has one
// canonical form.
func TestCanonicalJSONOfSQLIsThatOfGo(t *testing.T) {
	t.Parallel()
	_, db := open(t)
	pool, ctx := db.Pool(t), t.Context()
	check := func(t require.TestingT, doc string) {
		var stored, canonical string
		require.NoError(t, pool.QueryRow(ctx, `select d::text, tasker.canonical_json(d) from (select $1::text::jsonb) x(d)`, doc).Scan(&stored, &canonical))
		want, err := jsonscan.Canonical(json.RawMessage(stored))
		require.NoError(t, err, doc)
		require.Equal(t, string(want), canonical, doc)
	}
	for _, doc := range []string{`{}`, `[]`, `0.0`, `-0.0`, `1.0`, `0.000001`, `0.0000001`, `100000000000000000000.0`, `1000000000000000000000.0`, `1.5e-320`, `5e-324`, `1e-400`,
		`9007199254740993.0`, `1125899906842624.2`, `1125899906842624.3`, `1.000000000000000001`, `0.1000000000000000055511151231257827021181583404541015625`, `333333333.33333329`,
		`2.2250738585072011e-308`, `2.2250738585072014e-308`, `179769313486231570000.5`, `{"\uffff": 1, "\ud83d\ude00": 2, "a": {"b": 1, "aa": 2, "": 3}}`} {
		check(t, doc)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, randomDocument(t, 3)) })

	var identity []byte
	want, err := dedup.ContextIdentity("näme", "space", json.RawMessage(`{"b":1,"a":"ü"}`))
	require.NoError(t, err)
	require.NoError(t, pool.QueryRow(ctx, `select tasker.identity_of('context', 'näme', 'space', tasker.canonical_json('{"b":1,"a":"ü"}'))`).Scan(&identity))
	require.Equal(t, want[:], identity)
	want = dedup.KeyIdentity("space", "näme", "key-1")
	require.NoError(t, pool.QueryRow(ctx, `select tasker.identity_of('key', 'space', 'näme', 'key-1')`).Scan(&identity))
	require.Equal(t, want[:], identity)
}
