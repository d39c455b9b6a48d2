package submission

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func valid() Request {
	return Request{Namespace: "n", Name: "t", Version: "1", Context: json.RawMessage(`{"a":1}`)}
}

func TestRequestsAreChecked(t *testing.T) {
	high := 101
	for _, c := range []struct {
		want   string
		change func(*Request)
	}{
		{"name must not be empty", func(r *Request) { r.Name = "" }},
		{"namespace must not be empty", func(r *Request) { r.Namespace = "" }},
		{"name must have at most 64 characters", func(r *Request) { r.Name = strings.Repeat("é", 65) }},
		{"initiator must be text without control character NUL", func(r *Request) { r.Initiator = "a\x00" }},
		{"reason must have at most 500", func(r *Request) { r.Reason = strings.Repeat("x", 501) }},
		{"tags must have at most", func(r *Request) { r.Tags = make([]string, 65) }},
		{"tags[1] must not be empty", func(r *Request) { r.Tags = []string{"a", ""} }},
		{"priority must be between -100 and 100", func(r *Request) { r.Priority = &high }},
		{"the start must be within", func(r *Request) { r.StartIn = -1 }},
		{"idempotency_key must have at most", func(r *Request) { r.IdempotencyKey = strings.Repeat("k", 256) }},
		{"context must be a JSON object", func(r *Request) { r.Context = nil }},
		{"context must be a JSON object", func(r *Request) { r.Context = json.RawMessage(`[1]`) }},
		{"context must be a JSON object", func(r *Request) { r.Context = json.RawMessage(`{"a":`) }},
		{"at most 1048576 bytes", func(r *Request) {
			r.Context = json.RawMessage(`{"a":"` + strings.Repeat("x", MaxDocumentBytes) + `"}`)
		}},
		{"nested deeper than 100", func(r *Request) {
			r.Context = json.RawMessage(`{"a":` + strings.Repeat(`[`, 120) + strings.Repeat(`]`, 120) + `}`)
		}},
		{"context.a must have at most 2 elements", func(r *Request) {
			r.Context, r.Bounds = json.RawMessage(`{"a":[1,2,3]}`), Bounds{Items: 2}
		}},
		{"context.a contains the character NUL", func(r *Request) { r.Context = json.RawMessage(`{"a":"\u0000"}`) }},
		{"key that cannot be stored", func(r *Request) { r.Context = json.RawMessage(`{"\u0000":1}`) }},
		{"half a surrogate pair", func(r *Request) { r.Context = json.RawMessage(`{"a":"\ud800x"}`) }},
		{"half a surrogate pair", func(r *Request) { r.Context = json.RawMessage(`{"a":"\udc00"}`) }},
		{"context.a is out of range", func(r *Request) { r.Context = json.RawMessage(`{"a":1e400}`) }},
	} {
		r := valid()
		c.change(&r)
		err := r.Check()
		var invalid *InvalidError
		require.ErrorAs(t, err, &invalid, c.want)
		require.ErrorContains(t, err, c.want)
	}
	r := valid()
	r.Context = json.RawMessage(`{"emoji":"\ud83d\ude00","slash":"\\u0000","deep":[[[[1]]]]}`)
	require.NoError(t, r.Check())
}

func TestAllProblemsAreReportedAtOnce(t *testing.T) {
	r := Request{Context: json.RawMessage(`1`)}
	require.ErrorContains(t, r.Check(), "name must not be empty; namespace must not be empty; context must be")
}

func FuzzCheckContext(f *testing.F) {
	f.Add(`{"a":"\ud83d\ude00"}`)
	f.Add(`{"a":"\ud83d"}`)
	f.Fuzz(func(t *testing.T, in string) {
		if err := CheckContext(json.RawMessage(in)); err == nil {
			require.True(t, json.Valid([]byte(in)), "%q", in)
		}
	})
}
