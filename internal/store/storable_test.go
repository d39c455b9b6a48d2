package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/pgtest"
)

// documents at the limits of jsonb, with whether CheckStorable accepts them.
func documents() map[string]bool {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	return map[string]bool{
		`null`: true, `{}`: true, `"\u0001 \t \\u0000"`: true, `"\ud83d\ude00"`: true, `"😀"`: true,
		`1e308`: true, `-1.7e308`: true, `1e-400`: true, `0e999`: true, `0.0000e10`: true, `0e99999`: true, `1e-16383`: true, `1.000000000000000001`: true, `123.456E+2`: true,
		nested(jsonscan.MaxStorableNesting): true, `{"a":[1,{"b":"c"}]}`: true, ` [ 1 , 2 ] `: true,

		`"\u0000"`: false, `{"\u0000":1}`: false, `"a\\\u0000"`: false,
		`"\ud83d"`: false, `"\ude00"`: false, `"\ud83dx"`: false, `"\ud83d\u0041"`: false, `"\ud83d\ud83d"`: false, `["\uDC00"]`: false,
		`1e309`: false, `-1.8e308`: false, `1e400`: false, `1e99999999999999999999`: false, `1e131073`: false, `10e308`: false,
		`0e99999999999`: false, `0e-99999999999`: false, `0e2147483648`: false, `0e-20000`: false, `1e-20000`: false,
		`1e-16384`: false, `1e-99999999999999999999`: false, `0.` + strings.Repeat("0", 16384): false,
		strings.Repeat("9", 400):                false,
		nested(jsonscan.MaxStorableNesting + 1): false,
		``:                                      false, `{`: false, `nul`: false, `1 2`: false, "\"\xff\"": false, "\"\x00\"": false,
	}
}

// judged is CheckStorable's result for JSON; other documents are out of scope.
func judged(doc string) error {
	if !json.Valid([]byte(doc)) {
		return errors.New("no JSON")
	}
	return jsonscan.CheckStorable([]byte(doc))
}

func TestStorable(t *testing.T) {
	t.Parallel()
	for doc, want := range documents() {
		err := judged(doc)
		require.Equal(t, want, err == nil, "%.60q: %v", doc, err)
	}
}

// What CheckStorable accepts, the database accepts.
func TestTheDatabaseTakesWhatIsStorable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	takes := func(doc string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var back string
		return pool.QueryRow(ctx, `select $1::text::jsonb::text`, doc).Scan(&back)
	}
	for doc, want := range documents() {
		if want {
			require.NoError(t, takes(doc), "%.60q", doc)
		}
	}
	for _, doc := range []string{`"\u0000"`, `"\ud83d"`, `"\ude00"`, `1e131073`, `1e-16384`} {
		require.Error(t, takes(doc), "storable is stricter than it must be about %.60q", doc)
	}
	piece := rapid.SampledFrom([]string{`\u0000`, `\u0041`, `\ud83d`, `\ude00`, `\\`, `\n`, "a", "ä", `\"`})
	number := rapid.Custom(func(t *rapid.T) string {
		digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,6})?`).Draw(t, "digits")
		if rapid.Bool().Draw(t, "exponent") {
			digits += "e" + big.NewInt(rapid.SampledFrom([]int64{-20000, -16390, -16383, -16380, -1, 0, 300, 308, 309, 131072, 200000}).Draw(t, "e")).String()
		}
		return digits
	})
	rapid.Check(t, func(t *rapid.T) {
		doc := rapid.OneOf(
			number,
			rapid.Map(rapid.SliceOfN(piece, 0, 4), func(p []string) string { return `{"k":"` + strings.Join(p, "") + `"}` }),
		).Draw(t, "doc")
		if judged(doc) == nil {
			if err := takes(doc); err != nil {
				t.Fatalf("%q: %v", doc, err)
			}
		}
	})
}

// PostgreSQL accepts every storable document, and the check terminates for any input.
func FuzzStorable(f *testing.F) {
	for doc := range documents() {
		f.Add([]byte(doc))
	}
	pool := pgtest.New(f).Pool(f)
	f.Fuzz(func(t *testing.T, doc []byte) {
		if err := jsonscan.CheckStorable(doc); err != nil || !json.Valid(doc) {
			return
		}
		var kept string
		require.NoError(t, pool.QueryRow(t.Context(), `select $1::text::jsonb::text`, string(doc)).Scan(&kept))
		require.NoError(t, jsonscan.CheckStorable([]byte(kept)), "stored text can be stored again")
	})
}
