package rest_test

import (
	"net/http"
	"testing"
)

// FuzzCreate sends any body: the answer is never a 5xx and never a panic, and requests
// that reach the engine have the required fields.
func FuzzCreate(f *testing.F) {
	for _, seed := range []string{
		goodBody + "}", `{}`, `[]`, `null`, `"x"`, `{`, `{"name":1}`, goodBody + `,"priority":1e400}`, goodBody + `,"delay_seconds":-0}`,
		goodBody + `,"start_at":"2026-01-01T00:00:00Z"}`, goodBody + `,"start_at":"9999-12-31T23:59:59Z"}`, goodBody + `,"correlation_id":""}`,
		goodBody + `,"tags":null,"priority":null}`, "{\"name\":\"\xff\"}", `{"name":"\ud800"}`, goodBody + `,"start_at":"\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	h := newHouse(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		h.engine.change(func(*fakeStatus) { h.engine.created = nil })
		w := record(h, request(http.MethodPost, "/v1/tasks", string(body)))
		if w.Code >= 500 {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		for _, r := range h.engine.created {
			if len(r.Context) == 0 || r.StartIn < 0 {
				t.Fatalf("reached the engine: %+v", r)
			}
		}
	})
}
