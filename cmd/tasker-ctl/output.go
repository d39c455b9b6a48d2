package main

import (
	"bytes"
	"encoding/json"
	"fmt"
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
func (a *app) verdict(report any, ok bool, table func()) error {
	if err := a.emit(report, table); err != nil || ok {
		return err
	}
	return failure("")
}

// encode writes a value as JSON or YAML.
func (a *app) encode(value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(value); err != nil {
		return fmt.Errorf("write the answer as JSON: %w", err)
	}
	text := b.Bytes()
	if a.global.output == formatYAML {
		var err error
		if text, err = jsonToYAML(text); err != nil {
			return err
		}
	}
	_, err := a.stdout.Write(text)
	return err
}

// printf writes to stdout.
func (a *app) printf(format string, args ...any) { fmt.Fprintf(a.stdout, format, args...) }
