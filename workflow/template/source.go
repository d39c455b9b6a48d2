package template

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/tasker-go/tasker/internal/wording"
)

// position is a place in the file; both numbers count from 1, columns in
// characters.
type position struct{ line, column int }

var byteOrderMark = []byte("\xef\xbb\xbf")

// readDocument turns the text of a file into the node tree of its one
// document. It returns nil after reporting why there is none.
func (r *reader) readDocument(src []byte) *node {
	if len(src) > maxTemplateBytes {
		r.errorf(position{1, 1}, codeTooLarge, "", "the file has %d bytes; a template may have up to %d", len(src), maxTemplateBytes)
		return nil
	}
	src = bytes.TrimPrefix(src, byteOrderMark)
	if at, ok := firstBadByte(src); ok {
		r.errorf(at, codeSyntax, "", "the file is not UTF-8 text")
		return nil
	}
	body := r.parse(src)
	if body == nil {
		return nil
	}
	c := converter{reader: r, anchors: map[string]*node{}}
	root := c.convert(body)
	if c.full {
		return nil
	}
	return root
}

// firstBadByte finds the first byte that is not part of a UTF-8 text, or is NUL, which
// PostgreSQL cannot store.
func firstBadByte(src []byte) (position, bool) {
	at := position{1, 1}
	for i := 0; i < len(src); {
		c, size := utf8.DecodeRune(src[i:])
		if c == 0 || (c == utf8.RuneError && size == 1) {
			return at, true
		}
		if c == '\n' {
			at = position{at.line + 1, 1}
		} else {
			at.column++
		}
		i += size
	}
	return at, false
}

// tokenize returns the tokens of the first document that has content, without
// comments and directives; a second document with content is an error.
func (r *reader) tokenize(src []byte) token.Tokens {
	all := lexer.Tokenize(string(src))
	if bad := all.InvalidToken(); bad != nil {
		r.errorf(tokenPosition(bad), codeSyntax, "", "%s", syntaxMessage(bad.Error))
		return nil
	}
	documents := splitDocuments(all)
	if len(documents) == 0 {
		r.errorf(position{1, 1}, codeRequired, "", "the file holds no template")
		return nil
	}
	if len(documents) > 1 {
		r.errorf(tokenPosition(documents[1][0]), codeMultipleDocuments, "",
			"a second YAML document starts here; a file holds one template")
	}
	return documents[0]
}

// splitDocuments cuts at the document markers and drops empty documents.
func splitDocuments(all token.Tokens) []token.Tokens {
	var documents []token.Tokens
	var current token.Tokens
	directive := 0 // the line of a %directive, whose arguments are skipped
	end := func() {
		if len(current) > 0 {
			documents = append(documents, current)
		}
		current = nil
	}
	for _, tk := range all {
		switch {
		case tk.Type == token.DocumentHeaderType, tk.Type == token.DocumentEndType:
			end()
		case tk.Type == token.CommentType:
		case tk.Type == token.DirectiveType:
			directive = tk.Position.Line
		case tk.Position.Line == directive:
		default:
			if current == nil && documents == nil {
				current = make(token.Tokens, 0, len(all)) // there is nearly always only one
			}
			current = append(current, tk)
		}
	}
	end()
	return documents
}

// parse builds the syntax tree of one document, or reports its fault.
func (r *reader) parse(src []byte) (body ast.Node) {
	defer func() {
		if p := recover(); p != nil {
			r.errorf(position{1, 1}, codeSyntax, "", "the YAML cannot be read: %s", wording.Line(fmt.Sprint(p)))
			body = nil
		}
	}()
	tokens := r.tokenize(src)
	if tokens == nil {
		return nil
	}
	var guard shapeGuard
	if at, complaint := guard.check(tokens); complaint != "" {
		r.errorf(tokenPosition(at), codeTooLarge, "", "%s", complaint)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, message := tokenPosition(tokens[0]), err.Error()
		if yamlErr := yaml.Error(nil); errors.As(err, &yamlErr) {
			at, message = tokenPosition(yamlErr.GetToken()), yamlErr.GetMessage()
		}
		r.errorf(at, codeSyntax, "", "%s", syntaxMessage(message))
		return nil
	}
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		r.errorf(tokenPosition(tokens[0]), codeRequired, "", "the file holds no template")
		return nil
	}
	return file.Docs[0].Body
}

func tokenPosition(tk *token.Token) position {
	if tk == nil || tk.Position == nil {
		return position{1, 1}
	}
	return position{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
}

// syntaxHints translate the messages of the parser for authors.
var syntaxHints = [...]struct{ pattern, message string }{
	{"found character '\t'", "a tab cannot be used to indent; use spaces"},
	{"found a tab character", "a tab cannot be used to indent; use spaces"},
	{"mapping value is not allowed in this context", "a second \": \" in one line, or a line indented differently from its neighbours; quote the text or align the keys"},
	{"map key-value is pre-defined", "this line is indented further than the key above it, which already has a value"},
	{"value is not allowed in this context", "this line does not fit the structure above it; check its indentation"},
	{"',' or ']' must be specified", "a list in [ ] lacks a comma or its closing bracket"},
	{"',' or '}' must be specified", "a mapping in { } lacks a comma or its closing bracket"},
	{"sequence end token ']' not found", "a [ is never closed"},
	{"could not find flow mapping end token '}'", "a { is never closed"},
	{"could not find end character of double-quoted text", "a \" is never closed"},
	{"could not find end character of single-quoted text", "a ' is never closed"},
	{"is a reserved character", "a plain text cannot start with this character; put it in quotes"},
	{"non-map value is specified", "a key followed by a colon is needed here"},
	{"unexpected key name", "a key has to stand on one line, followed by a colon"},
}

func syntaxMessage(message string) string {
	for _, h := range syntaxHints {
		if strings.Contains(message, h.pattern) {
			return h.message
		}
	}
	return "the YAML cannot be read: " + wording.Line(message)
}
