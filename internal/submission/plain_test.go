package submission

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestPlainContexts(t *testing.T) {
	t.Parallel()
	for _, plain := range []string{
		`{}`, `{ }`, `{"a":1}`, `{"a":[],"b":{},"c":null,"d":true,"e":false}`, `{"a":-0.5,"b":0}`, `{"a":"\"\\\/\b\f\n\r\té\u00e9\uFFFF"}`,
		"{\n\t\"a\" : [ 1 , 2 ]\r\n}", `{"a":` + strings.Repeat("9", maxPlainNumber) + `}`, `{"a":` + strings.Repeat("[", 10) + strings.Repeat("]", 10) + `}`,
		`{"a":[` + strings.Repeat("1,", MaxContextItems-1) + `1]}`, `{"a":"` + strings.Repeat("x", MaxStringLength) + `"}`,
	} {
		require.Equal(t, len(plain), plainContext([]byte(plain)), plain)
		require.Equal(t, len(plain), plainContext([]byte(plain+",1")), "the rest of the text does not matter")
		require.NoError(t, CheckContext(json.RawMessage(plain)))
	}
	for _, other := range []string{
		``, `1`, `[]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a":01}`, `{"a":-}`, `{"a":1.}`, `{"a":.5}`, `{"a":1e5}`, `{"a":+1}`,
		`{"a":tru}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"\u0000"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\udc00"}`, "{\"a\":\"\n\"}", `{"a":"`, `{"a":"\`,
		`{"a":[1 2]}`, `{"a":[1}`, `{"a":` + strings.Repeat("9", maxPlainNumber+1) + `}`, `{"a":` + strings.Repeat("[", 11) + strings.Repeat("]", 11) + `}`,
		`{"a":[` + strings.Repeat("1,", MaxContextItems) + `1]}`, `{"a":"` + strings.Repeat("x", MaxStringLength+1) + `"}`,
		`{` + strings.Repeat(" ", MaxContextBytes) + `}`,
	} {
		require.Zero(t, plainContext([]byte(other)), "%.60s", other)
	}
}

// Every text accepted by plainContext must pass the check that decodes.
func FuzzPlainContext(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5,"x\n",null]}`, `{"a":{"b":{}}} x`, `{"a":"\u00e9"}`, `{"a":1e5}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := plainContext([]byte(text))
		if n == 0 || !utf8.ValidString(text) { // callers must know
			return
		}
		require.True(t, json.Valid([]byte(text[:n])), "%q", text)
		require.NoError(t, decodeContext(json.RawMessage(text[:n])), "%q", text)
	})
}

func BenchmarkCheckRequest(b *testing.B) {
	r := valid()
	r.Context = json.RawMessage(`{"order_id":4711,"customer":"c-019d1c5e-0c3e-7a41-9a0e-5b7b1b0a1f10","amount":12.5,"items":["a","b","c"]}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Check(); err != nil {
			b.Fatal(err)
		}
	}
}
