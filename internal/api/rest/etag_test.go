package rest_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

func TestWhatAClientHasIsNotSentAgain(t *testing.T) {
	t.Parallel()
	h, other := newHouse(t), newHouse(t)
	const target = "/v1/tasks?per_page=10"
	first := h.get(target)
	tag := first.Header.Get("ETag")
	require.Regexp(t, `^W/"[0-9a-z]+"$`, tag)
	require.Equal(t, "private, no-cache", first.Header.Get("Cache-Control"))
	for _, known := range []string{tag, tag[2:], `"x", ` + tag, "*"} {
		again := other.do(http.MethodGet, target, "", "If-None-Match", known)
		require.Equal(t, http.StatusNotModified, again.StatusCode, known)
		require.Empty(t, again.body)
		require.Equal(t, tag, again.Header.Get("ETag"))
	}
	require.Equal(t, first.body, h.do(http.MethodGet, target, "", "If-None-Match", `"x"`).body)
	h.store.total = 7
	require.Equal(t, http.StatusOK, h.do(http.MethodGet, target, "", "If-None-Match", tag).StatusCode, "it has changed")
	require.Empty(t, h.do(http.MethodPost, "/v1/tasks", goodBody).Header.Get("ETag"), "only what is read")
	h.store.fails(sqlError{})
	require.Empty(t, h.do(http.MethodGet, target, "", "If-None-Match", "*").Header.Get("ETag"), "a failure is no answer")
}

func TestLongAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	plain := h.get("/api-docs/openapi.json").body
	read := func(target, accepted string) (http.Header, io.Reader) {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("Accept-Encoding", accepted)
		w := httptest.NewRecorder()
		h.server.Handler().ServeHTTP(w, r)
		return w.Header(), w.Body
	}
	for accepted, want := range map[string]string{"gzip": "gzip", "gzip, zstd": "zstd", "zstd;q=0, gzip": "gzip", "br": "", "gzip;q=0": ""} {
		answer, body := read("/api-docs/openapi.json", accepted)
		require.Equal(t, want, answer.Get("Content-Encoding"), accepted)
		var err error
		switch want {
		case "gzip":
			body, err = gzip.NewReader(body)
		case "zstd":
			body, err = zstd.NewReader(body)
		}
		require.NoError(t, err)
		text, err := io.ReadAll(body)
		require.NoError(t, err)
		require.Equal(t, string(plain), string(text), accepted)
		require.Contains(t, strings.Join(answer.Values("Vary"), ","), "Accept-Encoding")
	}
	answer, _ := read("/health", "gzip, zstd")
	require.Empty(t, answer.Get("Content-Encoding"), "short answers are not")
}
