package rest

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// request is a decoded body of type B, with its keys as they were given and the problems
// found in it.
type request[B any] struct {
	checked
	body    B
	op      string   // the operation; "": one that ignores no key
	unknown []string // keys that were ignored
}

// readBody reads and decodes the body of a request: 415 without a JSON content
// type, 413 beyond the limit, 408 if it arrives too slowly, 400 if it is not JSON, 422 if
// it is other JSON than B.
func readBody[B any](x *exchange, op string) (*request[B], error) {
	raw, err := readRaw(x, x.server.cfg.MaxBodyBytes)
	if err != nil {
		return nil, err
	}
	r := &request[B]{op: op}
	if err := r.decode(raw); err != nil {
		return nil, err
	}
	x.server.ignored(op, r.unknown)
	return r, nil
}

// tolerant are the operations of Tasker, which ignores unknown keys, each with those of its
// clients that mean nothing here. A misspelt key is refused there too: an idempotencykey that
// was ignored would create a second task.
var tolerant = map[string][]string{
	"create-task": {"options", "requested_at"}, "act-on-step": {}, "update-dlq-entry": {},
	"open-session": {}, "report-steps": {}, "save-checkpoint": {}, // of processes that may be newer
}

// strays refuses the unknown keys that an operation does not ignore, and returns the others.
// thing is what an answer calls them.
func strays(thing string, found []strayKey, lenient bool, meaningless ...string) (ignored []string, err error) {
	for _, key := range found {
		switch {
		case slices.Contains(meaningless, key.path):
		case key.near != "":
			return nil, badRequest(fmt.Sprintf("unknown %s %q: did you mean %q?", thing, key.path, key.near))
		case !lenient:
			return nil, badRequest(fmt.Sprintf("unknown %s %q", thing, key.path))
		default:
			ignored = append(ignored, key.path)
		}
	}
	return ignored, nil
}

// maxNoted bounds the ignored keys that are logged, each once.
const maxNoted = 1000

// ignored counts the unknown keys and query parameters of a request, and logs each once.
func (s *Server) ignored(op string, keys []string) {
	for _, key := range keys {
		s.cfg.Telemetry.UnknownKeys.WithLabelValues(op).Inc()
		if s.noted.first(op + " " + key) {
			s.log.Warn("a key of requests is unknown and ignored", zap.String("operation", op), zap.String("key", key))
		}
	}
}

// noted are the first maxNoted texts that it was given, which clients choose. It is safe for
// concurrent use.
type noted struct {
	mu    sync.Mutex
	texts map[string]bool
}

// first reports whether a text is new, and remembers it; false beyond maxNoted.
func (n *noted) first(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.texts[text] || len(n.texts) >= maxNoted {
		return false
	}
	if n.texts == nil {
		n.texts = map[string]bool{}
	}
	n.texts[text] = true
	return true
}

// decode reads a body in place of the former one.
func (r *request[B]) decode(raw []byte) (err error) {
	r.checked = checked{names: structOf(reflect.TypeFor[B]())}
	var found []strayKey
	if r.given, found, err = decodeBody(raw, &r.body); err == nil {
		meaningless, lenient := tolerant[r.op]
		r.unknown, err = strays("key", found, lenient, meaningless...)
	}
	return err
}

// firstRead is the initial buffer for a body of unknown length.
const firstRead = 64 << 10

// readRaw reads the body of a request, at most limit bytes.
func readRaw(x *exchange, limit int64) ([]byte, error) {
	if !isJSON(x.request.Header.Get("Content-Type")) {
		return nil, &failure{status: http.StatusUnsupportedMediaType, code: codeMediaType,
			message: "Expected request with `Content-Type: application/json`"}
	}
	if most := x.body.most(); most < x.body.budget.places.Total() { // more would be all that others have
		limit = min(limit, max(most, smallBody))
	}
	if x.request.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	announced := x.request.ContentLength
	if announced < 0 || announced > smallBody {
		size := announced
		if size < 0 {
			size, announced = limit, firstRead
		}
		if err := x.body.take(x.request.Context(), size); err != nil {
			discard(x, limit)
			return nil, err
		}
	}
	body := http.MaxBytesReader(x.ResponseWriter, x.request.Body, limit)
	// One byte more than announced, so that the end is found without growing.
	raw, err := readInto(make([]byte, 0, max(announced, 511)+1), body)
	if err != nil {
		return nil, unread(err, limit)
	}
	if x.body.held != nil {
		_ = x.body.become(int64(len(raw))) // not more than the share
	}
	// From here on the connection is only watched for its end; a deadline would
	// look like one.
	_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Time{})
	return raw, nil
}

// discard reads an unused body piece by piece. Otherwise the connection would be closed
// under a client that still sends, which then sees a broken connection instead of the
// answer.
func discard(x *exchange, limit int64) {
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(x.ResponseWriter, x.request.Body, limit)) // a client that cannot send gets no answer either
}

// readInto appends all that is read to b.
func readInto(b []byte, r io.Reader) ([]byte, error) {
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		case len(b) == cap(b):
			b = slices.Grow(b, len(b))
		}
	}
}

func tooLarge(limit int64) *failure {
	return &failure{status: http.StatusRequestEntityTooLarge, code: codeTooLarge,
		message: fmt.Sprintf("The body must have at most %d bytes", limit)}
}

func unread(err error, limit int64) error {
	var beyond *http.MaxBytesError
	switch {
	case errors.As(err, &beyond):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &failure{status: http.StatusRequestTimeout, code: codeTimeout, message: "The body arrived too slowly"}
	}
	return badRequest("The body could not be read")
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasPrefix(media, "application/") && strings.HasSuffix(media, "+json"))
}
