package wording

import (
	"bytes"
	"fmt"
	"io"
	"unicode/utf8"
)

// deceives reports whether a character makes a terminal or a page show the text around it as another
// one: the controls of the direction of writing, and those of terminals beyond ASCII (C1).
func deceives(r rune) bool {
	return r >= 0x7f && r <= 0x9f || r == 0x061c || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Escape writes such characters as JSON, YAML and Go escape them: \u and four digits.
func Escape(text []byte) []byte {
	first := bytes.IndexFunc(text, mayDeceive)
	if first < 0 {
		return text
	}
	escaped := bytes.NewBuffer(make([]byte, 0, len(text)+16))
	escaped.Write(text[:first])
	for rest := text[first:]; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 {
			r = rune(rest[0]) // a terminal that knows no UTF-8 may take it for C1
		}
		if deceives(r) {
			fmt.Fprintf(escaped, `\u%04x`, r)
		} else {
			escaped.Write(rest[:size])
		}
		rest = rest[size:]
	}
	return escaped.Bytes()
}

func mayDeceive(r rune) bool { return r == utf8.RuneError || deceives(r) }

// Escaping is a writer whose output deceives nobody. Each write has whole characters.
type Escaping struct{ To io.Writer }

// Write implements io.Writer.
func (e Escaping) Write(p []byte) (int, error) {
	escaped := Escape(p)
	n, err := e.To.Write(escaped)
	if err == nil || n > len(p) {
		n = len(p)
	}
	return n, err
}

// Beneath returns the writer below, which may be a terminal.
func Beneath(w io.Writer) io.Writer {
	for {
		e, ok := w.(Escaping)
		if !ok {
			return w
		}
		w = e.To
	}
}
