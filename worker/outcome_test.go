package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/worker/internal/engine"
)

type declined struct{ error }

func (declined) ErrorType() string { return "CardDeclined" }

func TestFailureOf(t *testing.T) {
	t.Parallel()
	base := errors.New("base")
	cases := map[string]struct {
		err  error
		want engine.Failure
	}{
		"plain":     {base, engine.Failure{Message: "base", Type: engine.TypeUnexpected, Retryable: true, After: engine.NoDelay}},
		"permanent": {Permanent(base), engine.Failure{Message: "base", Type: engine.TypePermanent, After: engine.NoDelay}},
		"retryable": {Retryable(base, 0), engine.Failure{Message: "base", Type: engine.TypeRetryable, Retryable: true, After: engine.NoDelay}},
		"delayed":   {Retryable(base, time.Minute), engine.Failure{Message: "base", Type: engine.TypeRetryable, Retryable: true, After: time.Minute}},
		"outermost": {Retryable(fmt.Errorf("outer: %w", Permanent(base)), 0), engine.Failure{Message: "outer: base", Type: engine.TypeRetryable, Retryable: true, After: engine.NoDelay}},
		"wrapped":   {fmt.Errorf("outer: %w", Permanent(base)), engine.Failure{Message: "outer: base", Type: engine.TypePermanent, After: engine.NoDelay}},
		"code":      {WithCode(Permanent(base), "E1"), engine.Failure{Message: "base", Type: engine.TypePermanent, Code: "E1", After: engine.NoDelay}},
		"own type":  {Permanent(declined{base}), engine.Failure{Message: "base", Type: "CardDeclined", After: engine.NoDelay}},
		"details": {WithDetails(base, map[string]any{"a": 1}),
			engine.Failure{Message: "base", Type: engine.TypeUnexpected, Retryable: true, Context: json.RawMessage(`{"a":1}`), After: engine.NoDelay}},
		"bad details": {WithDetails(base, map[string]any{"a": "\x00"}),
			engine.Failure{Message: "base", Type: engine.TypeUnexpected, Retryable: true, After: engine.NoDelay,
				Context: json.RawMessage(`{"omitted":"a text in it contains the character NUL (\\u0000)"}`)}},
		"joined": {errors.Join(base, Permanent(base)), engine.Failure{Message: "base\nbase", Type: engine.TypePermanent, After: engine.NoDelay}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, engine.FailureOf(c.err))
		})
	}
	require.NoError(t, Permanent(nil))
	require.NoError(t, Retryable(nil, time.Second))
	require.NoError(t, WithCode(nil, "x"))
	require.NoError(t, WithDetails(nil, nil))
	require.ErrorIs(t, WithDetails(WithCode(Permanent(Retryable(base, 0)), "x"), nil), base)
}

// Whatever a handler's error contains, its report can be stored and is bounded.
func TestFailuresCanAlwaysBeStored(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 50), func(b []byte) string { return string(b) }),
			rapid.Map(rapid.SampledFrom([]string{"\x00", "ä", "\xff", "x"}), func(s string) string { return strings.Repeat(s, 9000) }),
		)
		err := WithDetails(WithCode(errors.New(text.Draw(t, "message")), text.Draw(t, "code")), map[string]any{"k": text.Draw(t, "detail")})
		made := engine.FailureOf(err)
		doc, unstorable := engine.Encode(made, 256<<10)
		if unstorable != nil {
			t.Fatalf("%s: %v", doc, unstorable)
		}
		var f engine.Failure
		if err := json.Unmarshal(doc, &f); err != nil {
			t.Fatal(err)
		}
		if len(f.Message) > 8<<10 || len(f.Code) > 255 || !utf8.ValidString(f.Message) {
			t.Fatalf("not bounded: %d, %d bytes", len(f.Message), len(f.Code))
		}
	})
}

func TestEncodeResult(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"nil": {nil, "null"}, "number": {5, "5"}, "text": {"ä", `"ä"`}, "raw": {json.RawMessage(`{"a":1}`), `{"a":1}`},
		"no raw": {json.RawMessage(nil), "null"}, "map": {map[string]any{"a": nil}, `{"a":null}`},
	} {
		doc, err := encodeResult(c.value, 100)
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(doc), name)
	}
	_, err := encodeResult(json.RawMessage(`{"a":`), 100)
	require.Equal(t, engine.TypeResultNotEncoded, engine.FailureOf(err).Type)
}

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ä", engine.Clip("ää", 3))
	require.Equal(t, "ää", engine.Clip("ää", 4))
	require.Empty(t, engine.Clip("ää", 1))
}

func TestDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	require.NoError(t, engine.CheckStorable(json.RawMessage(`"abc"`), 5))
	require.ErrorContains(t, engine.CheckStorable(json.RawMessage(`"abcd"`), 5), "more than 5")
	require.ErrorContains(t, engine.CheckStorable(json.RawMessage(`1e-20000`), 0), "out of range")
}
