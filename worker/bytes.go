package worker

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
)

// Bytes are opaque bytes with their media type, where everything else is JSON: as the
// result of a handler, or anywhere inside of results, contexts and checkpoints. Their JSON
// form is the same in every language, an object with exactly two members:
//
//	{"$bytes": "iVBORw0KGgo=", "content_type": "image/png"}
//
// The first is base64 (RFC 4648, section 4), so that they cost 4/3 of their size, which
// limits such as Config.MaxResultBytes count. ResultOf, InputAs and Field read them; of
// another document they return an error.
type Bytes struct {
	ContentType string // a media type of at most 255 bytes; "" becomes application/octet-stream
	Data        []byte
}

const (
	bytesKey, contentTypeKey = "$bytes", "content_type"
	defaultContentType       = "application/octet-stream"
	maxContentType           = 255
)

// mediaType is the grammar of RFC 9110, section 8.3.1, in ASCII. The packages for other
// languages have the same one.
var mediaType = regexp.MustCompile(`^` + token + `/` + token + `( *; *` + token + `=(` + token + `|"([ !#-\[\]-~]|\\[ -~])*"))*$`)

const token = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"

func checkContentType(text string) error {
	if len(text) > maxContentType || !mediaType.MatchString(text) {
		return fmt.Errorf("invalid content_type %.64q: want a media type of at most %d bytes, such as image/png", text, maxContentType)
	}
	return nil
}

// bytesForm is the JSON form of Bytes, whose data encoding/json turns into base64.
type bytesForm struct {
	Data        []byte `json:"$bytes"`
	ContentType string `json:"content_type"`
}

// MarshalJSON implements json.Marshaler. A content type that is no media type is an error.
func (b Bytes) MarshalJSON() ([]byte, error) {
	form := bytesForm{Data: b.Data, ContentType: cmp.Or(b.ContentType, defaultContentType)}
	if form.Data == nil {
		form.Data = []byte{} // nil would be null
	}
	if err := checkContentType(form.ContentType); err != nil {
		return nil, err
	}
	return json.Marshal(form)
}

var errNoBytes = errors.New(`the JSON document is no bytes: want an object of "$bytes", in base64, and "content_type"`)

// UnmarshalJSON implements json.Unmarshaler. The error says what is wrong with a document
// that is no bytes; null is none.
func (b *Bytes) UnmarshalJSON(doc []byte) error {
	var members map[string]*string // encoding/json would take keys of other case for fields
	if json.Unmarshal(doc, &members) != nil || len(members) != 2 || members[bytesKey] == nil || members[contentTypeKey] == nil {
		return errNoBytes
	}
	text := *members[bytesKey]
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || base64.StdEncoding.EncodedLen(len(data)) != len(text) { // line breaks are decoded, too
		return fmt.Errorf("%w: %q is no base64 with padding and without line breaks", errNoBytes, bytesKey)
	}
	if err := checkContentType(*members[contentTypeKey]); err != nil {
		return fmt.Errorf("%w: %w", errNoBytes, err)
	}
	b.ContentType, b.Data = *members[contentTypeKey], data
	return nil
}
