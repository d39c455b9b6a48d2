package rest

import (
	"strconv"
	"unicode/utf8"

	"github.com/tasker-go/tasker/orchestration"
)

// plainReader reads plain creations: every key known, spelled as documented and present
// once, no null, and no escape outside of the context. That is nearly every body, and
// reading it costs a fraction of encoding/json. Other bodies are left to encoding/json,
// which also words the errors: for a plain body both read the same.
type plainReader struct {
	text []byte
	at   int
	last plainTask // equal texts are reused
}

// plainTask is a createBody with the texts that its pointers point to.
type plainTask struct {
	body  createBody
	texts [numberOfTexts]string
}

// The texts of a creation.
const (
	textName = iota
	textNamespace
	textVersion
	textInitiator
	textSourceSystem
	textReason
	textCorrelation
	textParent
	textKey
	numberOfTexts
)

// readPlain reads a body that is one creation.
func readPlain(raw []byte) (*createBody, bool) {
	r := plainReader{text: raw}
	if body := r.task(); body != nil && r.end() {
		return body, true
	}
	return nil, false
}

// end reports whether only white space is left.
func (r *plainReader) end() bool {
	r.skip()
	return r.at == len(r.text)
}

func (r *plainReader) skip() {
	for r.at < len(r.text) {
		switch r.text[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// next skips white space and c; false if something else follows.
func (r *plainReader) next(c byte) bool {
	r.skip()
	if r.at < len(r.text) && r.text[r.at] == c {
		r.at++
		return true
	}
	return false
}

// task reads one creation; nil if it is not plain. The result is valid until the next
// call.
func (r *plainReader) task() *createBody {
	t := &r.last
	t.body = createBody{}
	if !r.next('{') {
		return nil
	}
	if r.next('}') {
		return &t.body
	}
	for {
		key, ok := r.quoted()
		if !ok || !r.next(':') || !r.field(t, key) {
			return nil
		}
		if r.next('}') {
			return &t.body
		}
		if !r.next(',') {
			return nil
		}
	}
}

// field reads the value of a key.
func (r *plainReader) field(t *plainTask, key []byte) bool {
	b := &t.body
	switch string(key) {
	case "name":
		return r.textField(t, textName, &b.Name)
	case "namespace":
		return r.textField(t, textNamespace, &b.Namespace)
	case "version":
		return r.textField(t, textVersion, &b.Version)
	case "initiator":
		return r.textField(t, textInitiator, &b.Initiator)
	case "source_system":
		return r.textField(t, textSourceSystem, &b.SourceSystem)
	case "reason":
		return r.textField(t, textReason, &b.Reason)
	case "correlation_id":
		return r.textField(t, textCorrelation, &b.CorrelationID)
	case "parent_correlation_id":
		return r.textField(t, textParent, &b.ParentCorrelationID)
	case "idempotency_key":
		var key *string
		if b.IdempotencyKey != "" || !r.textField(t, textKey, &key) {
			return false
		}
		b.IdempotencyKey = *key
		return true
	case "context":
		return b.Context == nil && r.context(b)
	case "priority":
		return b.Priority == nil && r.priority(b)
	case "tags":
		return b.Tags == nil && r.tags(b)
	}
	return false
}

func (r *plainReader) textField(t *plainTask, no int, to **string) bool {
	raw, ok := r.quoted()
	if !ok || *to != nil {
		return false
	}
	if string(raw) != t.texts[no] {
		t.texts[no] = string(raw)
	}
	*to = &t.texts[no]
	return true
}

// quoted reads a string without escapes.
func (r *plainReader) quoted() ([]byte, bool) {
	if !r.next('"') {
		return nil, false
	}
	for i := r.at; i < len(r.text); i++ {
		switch c := r.text[i]; {
		case c == '"':
			raw := r.text[r.at:i]
			r.at = i + 1
			return raw, true
		case c == '\\' || c < ' ':
			return nil, false
		}
	}
	return nil, false
}

func (r *plainReader) context(b *createBody) bool {
	r.skip()
	n := orchestration.PlainContext(r.text[r.at:])
	b.Context = r.text[r.at : r.at+n : r.at+n]
	r.at += n
	return n > 0
}

// priority reads a small integer.
func (r *plainReader) priority(b *createBody) bool {
	r.skip()
	begin := r.at
	for r.at < len(r.text) && (r.text[r.at] == '-' || r.text[r.at] >= '0' && r.text[r.at] <= '9') {
		r.at++
	}
	raw := r.text[begin:r.at]
	n, err := strconv.Atoi(string(raw))
	if err != nil || len(raw) > 4 || string(strconv.AppendInt(nil, int64(n), 10)) != string(raw) {
		return false // also -0 and 007
	}
	b.Priority = &n
	return true
}

func (r *plainReader) tags(b *createBody) bool {
	if !r.next('[') {
		return false
	}
	b.Tags = []string{}
	if r.next(']') {
		return true
	}
	for len(b.Tags) <= orchestration.MaxTags {
		raw, ok := r.quoted()
		if !ok {
			return false
		}
		b.Tags = append(b.Tags, string(raw))
		if r.next(']') {
			return true
		}
		if !r.next(',') {
			return false
		}
	}
	return false
}

// decodeTask reads a body that is one creation.
func decodeTask(raw []byte) (*createBody, error) {
	if utf8.Valid(raw) {
		if body, ok := readPlain(raw); ok {
			return body, nil
		}
	}
	body := &createBody{}
	return body, decode(raw, body)
}
