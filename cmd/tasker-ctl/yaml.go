package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// jsonToYAML writes a JSON document as block-style YAML: keys in their order,
// numbers as they are. Every text that some YAML reader could take for
// something else (a timestamp, "no", 1_000) is quoted, so that values stay
// what the API said.
func jsonToYAML(document []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	w := yamlWriter{decoder: d}
	if err := w.value(0, ""); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return w.out.Bytes(), nil
}

type yamlWriter struct {
	decoder *json.Decoder
	out     bytes.Buffer
}

// value writes the next value. lead is what stands between the key or the dash
// and a value on the same line.
func (w *yamlWriter) value(indent int, lead string) error {
	token, err := w.decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return w.object(indent, lead)
	case json.Delim('['):
		return w.list(indent, lead)
	}
	w.out.WriteString(lead + yamlScalar(token) + "\n")
	return nil
}

func (w *yamlWriter) object(indent int, lead string) error {
	first := true
	for ; w.decoder.More(); first = false {
		key, err := w.decoder.Token()
		if err != nil {
			return err
		}
		w.begin(indent, lead, first)
		w.out.WriteString(yamlScalar(key) + ":")
		if err := w.value(indent+1, " "); err != nil {
			return err
		}
	}
	return w.end(lead, first, "{}")
}

func (w *yamlWriter) list(indent int, lead string) error {
	if lead == " " && indent > 0 && !w.afterDash() {
		indent-- // a list stands as far left as its key
	}
	first := true
	for ; w.decoder.More(); first = false {
		w.begin(indent, lead, first)
		w.out.WriteString("-")
		if err := w.value(indent+1, " "); err != nil {
			return err
		}
	}
	return w.end(lead, first, "[]")
}

// begin starts a line for an entry; the first entry after a dash stays on its
// line.
func (w *yamlWriter) begin(indent int, lead string, first bool) {
	switch {
	case first && lead == "": // the document's first line
	case first && w.afterDash():
		w.out.WriteString(lead)
		return
	case first:
		w.out.WriteString("\n")
	}
	w.out.WriteString(strings.Repeat("  ", indent))
}

func (w *yamlWriter) afterDash() bool { return bytes.HasSuffix(w.out.Bytes(), []byte("-")) }

// end closes an object or a list, which is written in short when empty.
func (w *yamlWriter) end(lead string, empty bool, short string) error {
	if empty {
		w.out.WriteString(lead + short + "\n")
	}
	_, err := w.decoder.Token()
	return err
}

// plainText is what needs no quotes in any version of YAML, unless it is one
// of the words below.
var plainText = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)

func yamlScalar(token json.Token) string {
	switch v := token.(type) {
	case nil:
		return "null"
	case string:
		if plainText.MatchString(v) && !reservedWord(v) {
			return v
		}
		return quoted(v)
	case json.Number:
		// A number with an exponent needs a point to be one in YAML 1.1.
		if at := strings.IndexAny(v.String(), "eE"); at >= 0 && !strings.Contains(v.String(), ".") {
			return v.String()[:at] + ".0" + v.String()[at:]
		}
	}
	return fmt.Sprint(token)
}

func reservedWord(s string) bool {
	switch strings.ToLower(s) {
	case "null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf":
		return true
	}
	return false
}

// quoted writes text in double quotes; JSON's escapes are YAML's as well.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil { // a string can always be encoded
		return `""`
	}
	return strings.TrimRight(b.String(), "\n")
}
