package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// outputFormat is the value of --output.
type outputFormat string

const (
	formatTable outputFormat = "table"
	formatJSON  outputFormat = "json"
	formatYAML  outputFormat = "yaml"
)

// Set implements pflag.Value.
func (f *outputFormat) Set(value string) error {
	switch v := outputFormat(strings.ToLower(value)); v {
	case formatTable, formatJSON, formatYAML:
		*f = v
		return nil
	}
	return fmt.Errorf("must be table, json or yaml")
}

// String implements pflag.Value.
func (f *outputFormat) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *outputFormat) Type() string { return "format" }

// emit writes an answer: as the API gave it for json and yaml, else as the
// table function draws it.
func (a *app) emit(value any, table func()) error {
	if a.global.output == formatTable {
		table()
		return nil
	}
	return a.encode(value)
}

// verdict writes a report, and fails with exit code 1 unless it is good.
func (a *app) verdict(report any, ok bool, otherwise failure, table func()) error {
	if err := a.emit(report, table); err != nil || ok {
		return err
	}
	return otherwise
}

// encode writes a value as JSON or YAML.
func (a *app) encode(value any) error {
	text, err := marshal(value, "  ")
	if err == nil && a.global.output == formatYAML {
		text, err = jsonToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	_, err = a.stdout.Write(text)
	return err
}

// marshal writes JSON with every character as it is, and a line end.
func marshal(value any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(value)
	return b.Bytes(), err
}

// line writes a value of a series: in one line as JSON, else as a document.
func (a *app) line(value any) error {
	if a.global.output == formatYAML {
		return a.encode(value)
	}
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write the answer as JSON: %w", err)
	}
	a.printf("%s\n", line)
	return nil
}

// printf writes to stdout.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format, args...) }

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
	if opening, ok := token.(json.Delim); ok {
		return w.entries(indent, lead, opening == '{')
	}
	w.out.WriteString(lead + yamlScalar(token) + "\n")
	return nil
}

// entries writes an object or a list, which is written in short when empty.
func (w *yamlWriter) entries(indent int, lead string, object bool) error {
	mark, short := "-", "[]"
	if object {
		short = "{}"
	} else if lead == " " && indent > 0 && !w.afterDash() {
		indent-- // a list stands as far left as its key
	}
	first := true
	for ; w.decoder.More(); first = false {
		if object {
			key, err := w.decoder.Token()
			if err != nil {
				return err
			}
			mark = yamlScalar(key) + ":"
		}
		w.begin(indent, lead, first)
		w.out.WriteString(mark)
		if err := w.value(indent+1, " "); err != nil {
			return err
		}
	}
	if first {
		w.out.WriteString(lead + short + "\n")
	}
	_, err := w.decoder.Token()
	return err
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

// plainText is what needs no quotes in any version of YAML, unless it is one of
// the reserved words.
var (
	plainText    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*$`)
	reservedWord = regexp.MustCompile(`^(?i:null|true|false|yes|no|on|off|y|n|nan|inf)$`)
)

func yamlScalar(token json.Token) string {
	switch v := token.(type) {
	case nil:
		return "null"
	case string:
		if plainText.MatchString(v) && !reservedWord.MatchString(v) {
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

// quoted writes text in double quotes; JSON's escapes are YAML's as well.
func quoted(s string) string {
	text, _ := marshal(s, "") // a string can always be encoded
	return strings.TrimRight(string(text), "\n")
}
