package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tasker-go/tasker/internal/jsonscan"
)

// Bounds of the stored failure, in bytes.
const (
	maxMessage = 8 << 10
	maxType    = 255
	maxCode    = 255
	maxDetails = 64 << 10
)

// NoDelay as Failure.After: the handler requested no delay.
const NoDelay = time.Duration(-1)

// Failure is an error as it is reported and stored.
type Failure struct {
	Message   string          `json:"message"`
	Type      string          `json:"error_type"`
	Code      string          `json:"error_code,omitempty"`
	Retryable bool            `json:"retryable"`
	Context   json.RawMessage `json:"context,omitempty"`

	After time.Duration `json:"-"` // the least time to the next attempt, or NoDelay
}

// Of reads the marks of an error; of each kind the outermost counts.
func Of(err error) Failure {
	f := Failure{Message: Text(err.Error(), maxMessage), Type: TypeUnexpected, Retryable: true, After: NoDelay}
	var mark *verdict
	if errors.As(err, &mark) {
		f.Retryable = mark.retryable
		if f.Type = TypePermanent; mark.retryable {
			f.Type = TypeRetryable
		}
		if mark.retryable && mark.after > 0 {
			f.After = mark.after
		}
	}
	var kind interface{ ErrorType() string }
	if errors.As(err, &kind) && kind.ErrorType() != "" {
		f.Type = Text(kind.ErrorType(), maxType)
	}
	var code *coded
	if errors.As(err, &code) {
		f.Code = Text(code.code, maxCode)
	}
	var more *detailed
	if errors.As(err, &more) {
		f.Context = encodeDetails(more.details)
	}
	return f
}

// encodeDetails encodes the details of an error, or the reason why it cannot.
func encodeDetails(details map[string]any) json.RawMessage {
	doc, err := json.Marshal(details)
	if err == nil {
		err = CheckStorable(doc, maxDetails)
	}
	if err == nil {
		return doc
	}
	doc, err = json.Marshal(map[string]string{"omitted": Text(err.Error(), maxType)})
	if err != nil {
		return nil
	}
	return doc
}

// Encode returns the stored form.
func (f *Failure) Encode() json.RawMessage {
	doc, err := json.Marshal(f)
	if err != nil { // it holds only texts and checked JSON
		return json.RawMessage(`{"message":"the failure has no JSON form","error_type":"` + TypeUnexpected + `","retryable":true}`)
	}
	return doc
}

// CheckStorable returns a readable error if a document cannot be stored in at most limit
// bytes (0: any number).
func CheckStorable(doc json.RawMessage, limit int) error {
	if limit > 0 && len(doc) > limit {
		return fmt.Errorf("it has %d bytes, more than %d", len(doc), limit)
	}
	return jsonscan.CheckStorable(doc)
}

// Text clips s to n bytes and replaces characters that the database cannot store in text.
func Text(s string, n int) string {
	const replacement = "\uFFFD"
	s = strings.ToValidUTF8(strings.ReplaceAll(Clip(s, n), "\x00", replacement), replacement)
	return Clip(s, n) // a replacement is longer than the original
}

// Clip cuts s to at most n bytes at a character boundary.
func Clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
