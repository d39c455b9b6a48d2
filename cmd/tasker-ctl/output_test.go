package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/client"
)

// The three ways to ask for a format mean the same.
func TestFormatMayStandBeforeOrAfter(t *testing.T) {
	t.Parallel()
	want := newSession(t).run(t.Context(), "", "-o", "json", "template", "list")
	require.Zero(t, want.code)
	for _, args := range [][]string{
		{"--format", "json", "template", "list"},
		{"template", "list", "-o", "json"},
		{"template", "--output=json", "list"},
		{"template", "list", "--format", "JSON"},
	} {
		require.Equal(t, want, newSession(t).run(t.Context(), "", args...), "%v", args)
	}
}

// anyJSON draws documents with the texts that YAML readers stumble over.
func anyJSON(depth int) *rapid.Generator[any] {
	scalars := []*rapid.Generator[any]{
		rapid.SampledFrom([]any{nil, true, false, 0.0, -1.5, 1e21, 12345678.0}),
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.SampledFrom([]string{
			"", " ", "no", "On", "null", "~", "1", "1.0", "1_000", "0x1f", "1e3", "2026-03-21T10:11:13", "2026-03-21", "12:30:45",
			"a: b", "- a", "#", "a #b", "a:", "{}", "[x]", "*a", "&a", "!t", "|", ">", "%", "@", "`", "'", "\"", "\\", "a\nb", "\t", "\u2028", "\x7f", "é", "😀", ".inf", "=", "<<", "---", "...", "?", ": ",
		}), func(s string) any { return s }),
	}
	if depth == 0 {
		return rapid.OneOf(scalars...)
	}
	inner := rapid.Deferred(func() *rapid.Generator[any] { return anyJSON(depth - 1) })
	return rapid.OneOf(append(scalars,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "key", "no", "1", "x y", "é", "a: b", "", "-"}), inner, 0, 4), func(m map[string]any) any { return m }),
	)...)
}

func TestYAMLSaysWhatJSONSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		document, err := json.Marshal(anyJSON(4).Draw(t, "document"))
		require.NoError(t, err)
		written, err := jsonToYAML(document)
		require.NoError(t, err)
		var value any
		require.NoError(t, yaml.Unmarshal(written, &value), "%s", written)
		back, err := json.Marshal(value)
		require.NoError(t, err)
		require.JSONEq(t, string(document), string(back), "%s", written)
	})
}

func TestYAMLIsReadable(t *testing.T) {
	t.Parallel()
	written, err := jsonToYAML([]byte(`{"b":1,"a":[{"x":[1,[2,{"y":"no"}]],"z":{}},[]],"c":{"d":null,"e":"2026-03-21"},"big":12345678901234567890}`))
	require.NoError(t, err)
	require.Equal(t, `b: 1
a:
- x:
  - 1
  - - 2
    - "y": "no"
  z: {}
- []
c:
  d: null
  e: "2026-03-21"
big: 12345678901234567890
`, string(written))
}

// Columns stand under each other whatever the cells hold, and no cell can
// break a line or steer the terminal.
func TestTableIsAligned(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := &app{}
		tab := a.newTable("FIRST", "SECOND", "LAST")
		firsts := rapid.SliceOfN(rapid.String(), 1, 6).Draw(t, "firsts")
		for _, s := range firsts {
			tab.row(s, rapid.String().Draw(t, "second"), "|")
		}
		column := -1
		for i, line := range tab.lines()[1:] {
			require.NotContains(t, line, "\n")
			require.NotContains(t, line, "\x1b")
			require.True(t, strings.HasSuffix(line, "|"))
			at := utf8.RuneCountInString(line)
			if i > 0 {
				require.Equal(t, column, at, "%q", line)
			}
			column = at
		}
	})
}

func TestColoursOnlyWhereWanted(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	require.NotContains(t, s.run(t.Context(), "", "task", "list").stdout, "\x1b")
	s.live = terminal{colour: true}
	require.Contains(t, s.run(t.Context(), "", "task", "list").stdout, "\x1b[32mcomplete\x1b[0m")
	require.NotContains(t, s.run(t.Context(), "", "task", "list", "-o", "json").stdout, "\x1b")
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	for s, want := range map[float64]string{
		-1: "-", 0: "0ms", 0.0005: "0.5ms", 0.0099: "9.9ms", 0.12: "120ms", 1.25: "1.2s", 59.9: "59.9s",
		60: "1m00s", 95: "1m35s", 3700: "1h01m", 86400 * 3: "3d",
	} {
		require.Equal(t, want, seconds(duration(s)), "%v", s)
	}
}

func TestCounted(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"1 task", "0 tasks", "2 batches", "3 closed entries"},
		[]string{counted(1, "task"), counted(0, "task"), counted(2, "batch"), counted(3, "closed entry")})
}

// Every kind of value that the API has is written in one way.
func TestCells(t *testing.T) {
	t.Parallel()
	moment, n, none := client.Time{Time: time.Unix(1e9, 5e6)}, 7, (*string)(nil)
	for want, values := range map[string][]any{
		"-":   {nil, "", none, []string{}, json.RawMessage("null"), (*client.Time)(nil)},
		"yes": {true}, "no": {false}, "7": {7, &n, int64(7)}, "a,b": {[]string{"a", "b"}}, `{"n":1}`: {json.RawMessage(`{"n":1}`)},
		"2001-09-09 01:46:40.005Z": {moment, &moment, client.NaiveTime(moment)},
	} {
		for _, v := range values {
			require.Equal(t, cell{text: want}, cellOf(v), "%#v", v)
		}
	}
}

// TestAStepThatWasCompletedByHand: who did it and why is told, and what they
// wanted remembered with it.
// A fact stands where the capitals of its name say.
func TestWhereFactsStand(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	a := newApp(nil, &b, nil, func(string) (string, bool) { return "", false })
	r := resource[string]{a, "word", func(s *string) string { return *s }, func(s *string) facts {
		return facts{{"Both ways", *s}, {"LISTED", 1}, {"0 … 1s", 2}, {"shown", 3}, {"shown?", nil}, {"missing", nil}}
	}}
	one := "a\nb"
	r.list([]string{one})
	r.show(&one)
	r.said("changed")(&one)
	require.Equal(t, `BOTH WAYS  LISTED  0 … 1s
a b        1       2
both ways  a b
shown      3
missing    -
word a b: changed
`, b.String())
}

func TestAStepThatWasCompletedByHand(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newApp(nil, &out, io.Discard, func(string) (string, bool) { return "", false })
	step := fakeSteps(fakeTask(failedTask))[0]
	step.Results = json.RawMessage(`{"success":true,"result":1,"metadata":{"execution_time_ms":0,"custom":{"completed_by":"ana",
		"completion_reason":"vendor fixed it","manually_completed":true,"ticket":"X-1"}},"status":"completed"}`)
	a.showStep(&step)
	require.Regexp(t, `completed by +ana`, out.String())
	require.Regexp(t, `reason +vendor fixed it`, out.String())
	require.Contains(t, out.String(), `"ticket": "X-1"`)
}
