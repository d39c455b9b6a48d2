package submission

// maxPlainNumber keeps a number without an exponent far within the range of a double.
const maxPlainNumber = 300

// plainContext returns the length of the JSON object that text begins with, if one pass
// shows it to be within all bounds of a context. 0 says nothing about the object:
// CheckContext must decide. The caller must know that the text is UTF-8. Most contexts are
// plain, and the pass costs a small part of decoding them.
func plainContext(text []byte) int {
	if len(text) == 0 || text[0] != '{' {
		return 0
	}
	s := plainScanner{text: text}
	if !s.value(1) || s.at > MaxContextBytes {
		return 0
	}
	return s.at
}

// plainScanner scans JSON without decoding it. Each method starts at the first byte of what
// it is named after, moves past it and reports whether it is plain; escapes of surrogates
// and numbers with an exponent are not.
type plainScanner struct {
	text []byte
	at   int
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *plainScanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (s *plainScanner) value(depth int) bool {
	if depth > MaxContextDepth+1 {
		return false
	}
	switch c := s.peek(); c {
	case '{':
		return s.items('}', func() bool {
			if s.peek() != '"' || !s.quoted() || s.peek() != ':' {
				return false
			}
			s.at++
			return s.value(depth + 1)
		})
	case '[':
		return s.items(']', func() bool { return s.value(depth + 1) })
	case '"':
		return s.quoted()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

// items scans an object or an array.
func (s *plainScanner) items(closing byte, item func() bool) bool {
	s.at++
	if s.peek() == closing {
		s.at++
		return true
	}
	for n := 1; n <= MaxContextItems && item(); n++ {
		switch s.peek() {
		case closing:
			s.at++
			return true
		case ',':
			s.at++
		default:
			return false
		}
	}
	return false
}

func (s *plainScanner) quoted() bool {
	begin := s.at + 1
	for i := begin; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.at = i + 1
			return i-begin <= MaxStringLength
		case c < ' ':
			return false
		case c == '\\':
			if i++; i >= len(s.text) {
				return false
			}
			switch s.text[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if !plainEscape(s.text[i+1:]) {
					return false
				}
				i += 4
			default:
				return false
			}
		}
	}
	return false
}

// plainEscape reports whether text begins with the four digits of a storable character that
// is no surrogate.
func plainEscape(text []byte) bool {
	if len(text) < 4 {
		return false
	}
	for _, c := range text[:4] {
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
			return false
		}
	}
	code := hex4(text, 0)
	return code != 0 && (code < 0xD800 || code > 0xDFFF)
}

func (s *plainScanner) word(w string) bool {
	end := s.at + len(w)
	if end > len(s.text) || string(s.text[s.at:end]) != w {
		return false
	}
	s.at = end
	return true
}

func (s *plainScanner) number() bool {
	begin := s.at
	if s.at < len(s.text) && s.text[s.at] == '-' {
		s.at++
	}
	whole := s.at
	if s.digits() == 0 || s.text[whole] == '0' && s.at > whole+1 {
		return false
	}
	if s.at < len(s.text) && s.text[s.at] == '.' {
		s.at++
		if s.digits() == 0 {
			return false
		}
	}
	// After a number its object or array continues; an exponent is not plain.
	return s.at-begin <= maxPlainNumber
}

func (s *plainScanner) digits() int {
	begin := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		s.at++
	}
	return s.at - begin
}
