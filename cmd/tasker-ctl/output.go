package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
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
	lines, _, err := yamlLines(d)
	if err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

// yamlLines are those of the next value; short tells that it is one that stands
// behind its key or its dash: a scalar, or an empty list or object.
func yamlLines(d *json.Decoder) (lines []string, short bool, err error) {
	token, err := d.Token()
	opening, nested := token.(json.Delim)
	if err != nil || !nested {
		return []string{yamlScalar(token)}, true, err
	}
	for d.More() {
		mark := "-"
		if opening == '{' {
			key, err := d.Token()
			if err != nil {
				return nil, false, err
			}
			mark = yamlScalar(key) + ":"
		}
		value, short, err := yamlLines(d)
		if err != nil {
			return nil, false, err
		}
		lines = append(lines, yamlEntry(mark, value, short)...)
	}
	end, err := d.Token()
	if lines == nil {
		return []string{fmt.Sprintf("%v%v", opening, end)}, true, err
	}
	return lines, false, err
}

// yamlEntry puts a value behind a dash or a key, or below the key: a list then
// stands as far left as the key.
func yamlEntry(mark string, value []string, short bool) []string {
	switch {
	case short || mark == "-":
		value[0] = mark + " " + value[0]
	case strings.HasPrefix(value[0], "-"):
		return slices.Insert(value, 0, mark)
	default:
		value = slices.Insert(value, 0, mark)
	}
	for i := range value[1:] {
		value[1+i] = "  " + value[1+i]
	}
	return value
}

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
