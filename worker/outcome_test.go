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

	"github.com/tasker-go/tasker/store"
)

type declined struct{ error }

func (declined) ErrorType() string { return "CardDeclined" }

func TestFailureOf(t *testing.T) {
	t.Parallel()
	base := errors.New("base")
	cases := map[string]struct {
		err  error
		want failure
	}{
		"plain":     {base, failure{Message: "base", Type: TypeUnexpected, Retryable: true, after: noDelay}},
		"permanent": {Permanent(base), failure{Message: "base", Type: TypePermanent, after: noDelay}},
		"retryable": {Retryable(base, 0), failure{Message: "base", Type: TypeRetryable, Retryable: true, after: noDelay}},
		"delayed":   {Retryable(base, time.Minute), failure{Message: "base", Type: TypeRetryable, Retryable: true, after: time.Minute}},
		"outermost": {Retryable(fmt.Errorf("outer: %w", Permanent(base)), 0), failure{Message: "outer: base", Type: TypeRetryable, Retryable: true, after: noDelay}},
		"wrapped":   {fmt.Errorf("outer: %w", Permanent(base)), failure{Message: "outer: base", Type: TypePermanent, after: noDelay}},
		"code":      {WithCode(Permanent(base), "E1"), failure{Message: "base", Type: TypePermanent, Code: "E1", after: noDelay}},
		"own type":  {Permanent(declined{base}), failure{Message: "base", Type: "CardDeclined", after: noDelay}},
		"details": {WithDetails(base, map[string]any{"a": 1}),
			failure{Message: "base", Type: TypeUnexpected, Retryable: true, Context: json.RawMessage(`{"a":1}`), after: noDelay}},
		"bad details": {WithDetails(base, map[string]any{"a": "\x00"}),
			failure{Message: "base", Type: TypeUnexpected, Retryable: true, after: noDelay,
				Context: json.RawMessage(`{"omitted":"a text in it contains the character NUL (\\u0000)"}`)}},
		"joined": {errors.Join(base, Permanent(base)), failure{Message: "base\nbase", Type: TypePermanent, after: noDelay}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, failureOf(c.err))
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
		r := reportFailure(store.ClaimKey{}, failureOf(err))
		if err := storable(r.Error, 256<<10); err != nil {
			t.Fatalf("%s: %v", r.Error, err)
		}
		var f failure
		if err := json.Unmarshal(r.Error, &f); err != nil {
			t.Fatal(err)
		}
		if len(f.Message) > maxErrorMessage || len(f.Code) > maxErrorCode || !utf8.ValidString(f.Message) {
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
	require.Equal(t, TypeResultNotEncoded, failureOf(err).Type)
}

func TestFullScans(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	var f fullScans
	require.True(t, f.overdue(begin))
	require.Zero(t, f.wait(begin, partPause))

	f.made(begin, begin.Add(time.Millisecond), false) // cheap
	now := f.ended
	require.Equal(t, 20*time.Millisecond, f.wait(now, emptyPause), "the share is more than the pause")
	require.Equal(t, partPause, f.wait(now, partPause))
	require.Zero(t, f.wait(now, 0))
	require.Zero(t, f.wait(now.Add(partPause), partPause))
	require.False(t, f.overdue(now.Add(fullScanEvery-1)))
	require.True(t, f.overdue(now.Add(fullScanEvery)))

	f.made(begin, begin.Add(time.Second), false) // expensive, but only once
	require.Zero(t, f.wait(f.ended, 0))
	f.made(begin, begin.Add(time.Second), false) // expensive
	now = f.ended
	require.Equal(t, 20*time.Second, f.wait(now, 0), "however eager")
	require.False(t, f.overdue(now.Add(20*time.Second-1)))
	require.True(t, f.overdue(now.Add(20*time.Second)))

	f.made(begin, begin.Add(time.Second), true)
	require.Zero(t, f.wait(f.ended, partPause), "however expensive: it left work behind")
}

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "ä", clip("ää", 3))
	require.Equal(t, "ää", clip("ää", 4))
	require.Empty(t, clip("ää", 1))
}

func TestDocumentsAreBounded(t *testing.T) {
	t.Parallel()
	require.NoError(t, storable(json.RawMessage(`"abc"`), 5))
	require.ErrorContains(t, storable(json.RawMessage(`"abcd"`), 5), "more than 5")
	require.ErrorContains(t, storable(json.RawMessage(`1e-20000`), 0), "out of range")
}
