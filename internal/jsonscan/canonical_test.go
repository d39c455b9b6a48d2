package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// canonicalReference computes the canonical form from the values of encoding/json: slow,
// short, and without a parser of its own.
func canonicalReference(text []byte) (string, error) {
	if !json.Valid(text) {
		return "", fmt.Errorf("not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	return referenceOf(v)
}

func referenceOf(v any) (string, error) {
	var parts []string
	switch v := v.(type) {
	case string:
		return referenceString(v), nil
	case json.Number:
		return referenceNumber(v.String())
	case []any:
		for _, e := range v {
			text, err := referenceOf(e)
			if err != nil {
				return "", err
			}
			parts = append(parts, text)
		}
		return "[" + strings.Join(parts, ",") + "]", nil
	case map[string]any:
		keys := slices.SortedFunc(maps.Keys(v), func(x, y string) int {
			return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)))
		})
		for _, k := range keys {
			text, err := referenceOf(v[k])
			if err != nil {
				return "", err
			}
			parts = append(parts, referenceString(k)+":"+text)
		}
		return "{" + strings.Join(parts, ",") + "}", nil
	case bool:
		return strconv.FormatBool(v), nil
	default:
		return "null", nil
	}
}

func referenceString(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch short := strings.IndexRune("\b\f\n\r\t\"\\", r); {
		case short >= 0:
			b.WriteString(`\` + `bfnrt"\`[short:short+1])
		case r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return `"` + b.String() + `"`
}

func referenceNumber(text string) (string, error) {
	if !strings.ContainsAny(text, ".eE") && text != "-0" {
		return text, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", err
	}
	written, _, _ := strings.Cut(strings.ToLower(text), "e")
	digits := strings.Trim(strings.NewReplacer("-", "", ".", "").Replace(written), "0")
	switch {
	case digits == "":
		return "0", nil
	case !carried(text, f, len(digits)):
		exact, _, err := big.ParseFloat(text, 10, bitsFor(text), big.ToNearestEven)
		mantissa, exponent, _ := strings.Cut(exact.Text('e', len(digits)-1), "e")
		if exponent = exponent[:1] + strings.TrimLeft(exponent[1:], "0"); len(exponent) == 1 {
			exponent = "+0"
		}
		return mantissa + "e" + exponent, err
	case math.Abs(f) < 1e21 && math.Abs(f) >= 1e-6:
		return strconv.FormatFloat(f, 'f', -1, 64), nil
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	return mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0"), nil
}

// bitsFor is a precision at which the number of a text is exact, or so nearly that all of
// its digits are kept: four bits per digit, and three per power of ten.
func bitsFor(text string) uint {
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	tens, _ := strconv.Atoi(exponent) // 0 without one
	return uint(64 + 4*len(text) + 3*max(tens, -tens))
}

// carried reports whether a double, written with so many digits, is the number of
// the text again.
func carried(text string, f float64, digits int) bool {
	number, ok := new(big.Rat).SetString(text)
	again, ok2 := new(big.Rat).SetString(new(big.Float).SetFloat64(f).Text('e', digits-1))
	return ok && ok2 && number.Cmp(again) == 0
}

func requireLikeReference(t require.TestingT, text []byte) {
	want, wantErr := canonicalReference(text)
	got, err := Canonical(text)
	if wantErr != nil {
		require.Error(t, err, "%q", text)
		return
	}
	require.NoError(t, err, "%q", text)
	require.Equal(t, want, string(got), "%q", text)
}

// randomJSON draws a JSON text with odd spellings.
func randomJSON(t *rapid.T, depth int) string {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r "}).Draw(t, "space")
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	var text string
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		text = rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word")
	case 1:
		text = rapid.OneOf(rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?`),
			rapid.Custom(func(t *rapid.T) string {
				f := rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64).Draw(t, "double")
				return strconv.FormatFloat(f, 'e', rapid.IntRange(-1, 30).Draw(t, "digits"), 64)
			})).Draw(t, "number")
	case 2, 3:
		text = randomJSONString(t)
	case 4:
		text = "[" + strings.Join(randomMembers(t, func() string { return randomJSON(t, depth-1) }), ",") + "]"
	default:
		text = "{" + strings.Join(randomMembers(t, func() string {
			return randomJSONString(t) + space + ":" + randomJSON(t, depth-1)
		}), ",") + space + "}"
	}
	return space + text + space
}

func randomMembers(t *rapid.T, one func() string) (members []string) {
	for range rapid.IntRange(0, 4).Draw(t, "members") {
		members = append(members, one())
	}
	return members
}

func randomJSONString(t *rapid.T) string {
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{
		"a", "b", "key", " ", "/", "é", "€", "\ufb33", "😀", "\u2028", "\xff", "\xed\xa0\x80", "\x7f",
		`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0000`, `\u001F`, `\u0041`, `\u20ac`, `\ud83d\ude00`, `\ud83d`, `\ude00`, `\uD83D\u0041`,
	}), 0, 4).Draw(t, "pieces")
	return `"` + strings.Join(pieces, "") + `"`
}

func TestCanonicalLikeTheReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(randomJSON(t, 4))
		requireLikeReference(t, text)
		// One byte lost, changed or doubled: mostly no JSON any more.
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		other := rapid.SampledFrom([]byte(`{}[]",:\0e.-u`+"\x00\n\xff")).Draw(t, "other")
		requireLikeReference(t, slices.Delete(slices.Clone(text), at, at+1))
		requireLikeReference(t, slices.Insert(slices.Clone(text), at, other))
		requireLikeReference(t, text[:at])
	})
}

func TestCanonicalOfOddTexts(t *testing.T) {
	for _, text := range []string{
		`{"a":1,"a":2}`, `{"a":1,"\u0061":{"b":1}}`, `{"a":1e999,"a":2}`, `{"a":1,"a":1e999}`,
		`[1]]`, `{}}`, `[] {}`, `"\ud83d\u`, `"\ud83d\uzzzz"`, `01`, `-`, `-01`, `1.`, `.5`, `1e`, `1e+`, `+1`, `tru`, `truex`, "\ufeff1",
		`{"a"}`, `{"a":}`, `{,}`, `[,]`, `[1,]`, `{"a":1,}`, `{1:2}`, "\"\n\"", `1e-400`, `-0.0`, `-0e5`, `5e-324`, `1.7976931348623157e308`,
	} {
		requireLikeReference(t, []byte(text))
	}
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	got, err := Canonical(deep(maxDepth))
	require.NoError(t, err)
	require.Equal(t, string(deep(maxDepth)), string(got))
	_, err = Canonical(deep(maxDepth + 1))
	require.ErrorContains(t, err, "nested more than 10000 deep")
}

func TestCanonicalNamesThePlace(t *testing.T) {
	_, err := Canonical(json.RawMessage(`{"a": nope}`))
	require.EqualError(t, err, `read JSON: 'o' does not belong at byte 7`)
	_, err = Canonical(json.RawMessage(`{"a": [1`))
	require.EqualError(t, err, `read JSON: the text of 8 bytes ends too early`)
}

// Different numbers are different tasks, even where no double distinguishes them.
func TestNumbersBeyondDoublesAreReported(t *testing.T) {
	for _, pair := range [][2]string{
		{"1.000000000000000001", "1.000000000000000002"}, {"0.12345678901234567890", "0.12345678901234567891"},
		{"1e-400", "2e-400"}, {"9007199254740993.1", "9007199254740993.2"}, {"9007199254740993.0", "9007199254740992.0"},
		{"1.5e-320", "1.5001e-320"}, {"-1.000000000000000001", "1.000000000000000001"}, {"100000000000000000000.5", "100000000000000000000.25"},
	} {
		a, err := Canonical([]byte(pair[0]))
		require.NoError(t, err)
		b, err := Canonical([]byte(pair[1]))
		require.NoError(t, err)
		require.NotEqual(t, string(a), string(b))
	}
	for _, alike := range [][]string{
		{"1.000000000000000001", "1.0000000000000000010", "1000000000000000001e-18", "0.1000000000000000001e1", "0.01000000000000000001E+2"},
		{"1e-400", "0.1e-399", "10.00e-401"}, {"0.1", "1e-1", "0.10", "0.1000000000000000055511151231257827021181583404541015625"},
		{"0.10000000000000001", "0.1"}, {"1e23", "100000000000000000000000.0", "9.9999999999999992e22"},
	} {
		want, err := Canonical([]byte(alike[0]))
		require.NoError(t, err)
		for _, text := range alike[1:] {
			got, err := Canonical([]byte(text))
			require.NoError(t, err)
			require.Equal(t, string(want), string(got), text)
		}
	}
}

// Identities are made of storable contexts; exponents beyond them saturate and keep their sign.
func TestExponentsBeyondAllBoundsStayOnTheirSide(t *testing.T) {
	for _, text := range []string{"0.001e-9223372036854775808", "0.001e-99999999999999999999"} {
		got, err := Canonical([]byte(text))
		require.NoError(t, err)
		require.Equal(t, "1e-2147483651", string(got), text)
	}
}

// A number that a program wrote from a double counts as that double: with the fewest digits,
// 15, 17 or all of them. Identities of such contexts never changed.
func TestDoublesCountAsEverBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := math.Float64frombits(rapid.Uint64().Draw(t, "bits"))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			t.Skip("no number")
		}
		want := "0"
		if abs := math.Abs(f); abs < 1e21 && abs >= 1e-6 {
			want = strconv.FormatFloat(f, 'f', -1, 64)
		} else if f != 0 {
			mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
			want = mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
		}
		for _, digits := range []int{-1, 16, 17, 20, 40, 766} {
			text := strconv.FormatFloat(f, 'e', digits, 64)
			got, err := Canonical([]byte(text))
			require.NoError(t, err)
			require.Equal(t, want, string(got), text)
		}
	})
}

func TestCanonical(t *testing.T) {
	for in, want := range map[string]string{
		`{ "b" : 1.0, "a" : [ true , null ] }`:                  `{"a":[true,null],"b":1}`,
		`{"\u20ac":1,"\r":2,"1":3,"\ud83d\ude00":4,"\ufb33":5}`: "{\"\\r\":2,\"1\":3,\"€\":1,\"😀\":4,\"\ufb33\":5}",
		`[1e21, 1E-7, 0.000001, -0, 1e2, 333333333.3333333]`:    `[1e+21,1e-7,0.000001,0,100,333333333.3333333]`,
		`[333333333.33333329]`:                                  `[3.3333333333333329e+8]`, // a sample of the RFC, but no double
		`[9007199254740993, 123456789012345678901234567890]`:    `[9007199254740993,123456789012345678901234567890]`,
		`"\u0041\n\u001f\"\\/"`:                                 `"A\n\u001f\"\\/"`,
	} {
		got, err := Canonical(json.RawMessage(in))
		require.NoError(t, err, in)
		require.Equal(t, want, string(got))
		again, err := Canonical(got)
		require.NoError(t, err)
		require.Equal(t, want, string(again), "canonical is a fixed point")
	}
	for _, bad := range []string{``, `{`, `1 2`, `1e400`, `nope`} {
		_, err := Canonical(json.RawMessage(bad))
		require.Error(t, err, bad)
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add(`{"a":[1,2.5e3,"\u00e9"]}`)
	f.Fuzz(func(t *testing.T, in string) {
		requireLikeReference(t, []byte(in))
		got, err := Canonical(json.RawMessage(in))
		if err != nil {
			return
		}
		again, err := Canonical(got)
		require.NoError(t, err)
		require.Equal(t, string(got), string(again))
	})
}

// TestUnmarshal: numbers without a type of their own keep their digits, and faults have the words
// of encoding/json.
func TestUnmarshal(t *testing.T) {
	t.Parallel()
	var v struct {
		N any
		I int64
	}
	require.NoError(t, Unmarshal([]byte(`{"n": [9007199254740993, 1.000000000000000001], "i": 9007199254740993}`), &v))
	require.Equal(t, []any{json.Number("9007199254740993"), json.Number("1.000000000000000001")}, v.N)
	require.EqualValues(t, 9007199254740993, v.I)
	for _, text := range []string{"", " ", "{", `{"n":1} x`, `{"n":01}`, `{"i":"x"}`, "[1]", "{}{}"} {
		want := json.Unmarshal([]byte(text), &v)
		require.EqualError(t, Unmarshal([]byte(text), &v), want.Error(), text)
	}
}
