package config

import (
	"bytes"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const tricky = `# a comment with [brackets] = and "quotes"
top = 1
[a]
s = "with ] and # and \" inside" # after
lit = 'C:\path\'
multi = """
[not.a.table]
x = "1\
" ""] """""
lits = '''
key = 'v'
'''
 list = [ 1, # one
   [2, "]"],
 ]
"quoted key" = true
dotted.deep."er" = 1979-05-27T07:32:00Z

[a.b] # table
inline = { x = 1, y = { z = "}" }, "q" = [ { w = 1 }, { w = 2 } ] }
[[list.of]]
name = "first"
[list.of.sub]
n = 1
[[list.of]]
name = "second"
  last = 3.5
`

func TestLocateFindsEachKey(t *testing.T) {
	var tree map[string]any
	_, err := toml.Decode(tricky, &tree)
	require.NoError(t, err, "the sample must be valid")
	at := locate("f.toml", tricky)
	lines := strings.Split(tricky, "\n")
	for path, want := range map[string]struct {
		line   int
		prefix string
	}{
		"top":               {2, "top"},
		"a":                 {3, "[a]"},
		"a.s":               {4, "s ="},
		"a.lit":             {5, "lit"},
		"a.multi":           {6, "multi"},
		"a.lits":            {10, "lits"},
		"a.list":            {13, "list"},
		"a.quoted key":      {16, `"quoted key"`},
		"a.dotted.deep.er":  {17, "dotted"},
		"a.b":               {19, "[a.b]"},
		"a.b.inline.x":      {20, "x = 1"},
		"a.b.inline.y.z":    {20, `z = "}"`},
		"a.b.inline.q[1].w": {20, "w = 2"},
		"list.of[0].name":   {22, "name"},
		"list.of[0].sub.n":  {24, "n ="},
		"list.of[1].name":   {26, "name"},
		"list.of[1].last":   {27, "last"},
	} {
		p, ok := at[path]
		if !assert.True(t, ok, path) {
			continue
		}
		assert.Equal(t, want.line, p.Line, path)
		assert.True(t, strings.HasPrefix(lines[p.Line-1][p.Column-1:], want.prefix), "%s at column %d", path, p.Column)
		assert.Equal(t, "f.toml", p.File)
	}
	assert.NotContains(t, at, "not.a.table")
}

// TestLocateAgreesWithTheParser writes random trees with the TOML encoder and
// expects a place for each key that the parser reports.
func TestLocateAgreesWithTheParser(t *testing.T) {
	name := rapid.StringMatching(`[a-z][a-z_0-9-]{0,5}`)
	scalar := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.SliceOfN(rapid.String(), 0, 3), func(l []string) any { return l }),
	)
	var table func(depth int) *rapid.Generator[map[string]any]
	table = func(depth int) *rapid.Generator[map[string]any] {
		value := scalar
		if depth > 0 {
			value = rapid.OneOf(scalar, rapid.Map(table(depth-1), func(m map[string]any) any { return m }))
		}
		return rapid.MapOfN(name, value, 0, 4)
	}
	rapid.Check(t, func(t *rapid.T) {
		var document bytes.Buffer
		if err := toml.NewEncoder(&document).Encode(table(3).Draw(t, "tree")); err != nil {
			t.Skip("not encodable")
		}
		var tree map[string]any
		meta, err := toml.Decode(document.String(), &tree)
		if err != nil {
			t.Skip("not decodable")
		}
		at := locate("f", document.String())
		for _, k := range meta.Keys() {
			if _, ok := at[strings.Join(k, ".")]; !ok {
				t.Fatalf("no place for %s in\n%s", k, document.String())
			}
		}
		if len(at) != len(meta.Keys()) {
			t.Fatalf("%d places for %d keys in\n%s", len(at), len(meta.Keys()), document.String())
		}
	})
}

func TestLocateSurvivesWhatIsNotTOML(t *testing.T) {
	for _, s := range []string{"[", "[[", "a", "a=", "a=[", "a={", `a="`, `a="\`, "=", "]", "a=[[[{b=", `"""`, "\x00", "a.=1", "a={,,,"} {
		assert.NotPanics(t, func() { locate("f", s) }, "%q", s)
	}
}
