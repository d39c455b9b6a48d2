package template

import (
	"unicode/utf8"

	"github.com/goccy/go-yaml/token"
)

// The limits of one template file. They are far above what a real template
// needs and keep a hostile or generated file from exhausting the reader.
const (
	maxTemplateBytes    = 1 << 20  // size of the file
	maxYAMLDepth        = 64       // nested mappings and lists, aliases followed
	maxYAMLKeys         = 2_000    // keys of one mapping
	maxYAMLKeyLength    = 1_024    // characters of one key
	maxYAMLPathBytes    = 64 << 20 // sum over all tokens of the length of their path
	maxExpandedBytes    = 16 << 20 // content after all aliases have been followed
	expandedNodeBytes   = 16       // what one node counts besides its text
	maxConsecutiveMarks = 8        // tags, anchors and "?" in a row
	maxNumberLength     = 400      // digits of a number; more are a text
)

// shapeGuard examines the tokens of a document before parsing. The parser recurses once per
// nesting level and once per key of a mapping and keeps the path of every node, so its cost
// must be bounded from outside.
type shapeGuard struct {
	frames   []shapeFrame
	flow     int // open brackets
	marks    int // tags, anchors and "?" in a row
	flowKeys int // keys since the last comma or bracket
	work     int // sum of path lengths so far
}

// shapeFrame is one open mapping or list.
type shapeFrame struct {
	column int // 0 for a bracket
	keys   int
	base   int // length of the path to the mapping itself
	path   int // length of the path to its current value
}

// check returns the first token beyond a limit, and the limit.
func (g *shapeGuard) check(tokens token.Tokens) (*token.Token, string) {
	for i, tk := range tokens {
		if complaint := g.step(tk, tokens, i); complaint != "" {
			return tk, complaint
		}
		g.work += g.pathLength()
		if g.work > maxYAMLPathBytes {
			return tk, "the file is nested too deeply for its size"
		}
		if len(g.frames) > maxYAMLDepth {
			return tk, "mappings and lists are nested too deeply"
		}
	}
	return nil, ""
}

func (g *shapeGuard) step(tk *token.Token, tokens token.Tokens, i int) string {
	switch tk.Type {
	case token.TagType, token.AnchorType, token.MappingKeyType:
		if g.marks++; g.marks > maxConsecutiveMarks {
			return "too many tags or anchors in a row"
		}
		return ""
	case token.MappingStartType, token.SequenceStartType:
		g.frames = append(g.frames, shapeFrame{base: g.pathLength(), path: g.pathLength()})
		g.flow++
		g.flowKeys = 0
	case token.MappingEndType, token.SequenceEndType:
		g.closeBracket()
	case token.CollectEntryType:
		g.flowKeys = 0
	case token.SequenceEntryType:
		if g.flow == 0 {
			g.enterBlock(tk.Position.Column)
		}
	case token.MappingValueType:
		if i > 0 {
			return g.key(tokens[i-1])
		}
	}
	if tk.Type != token.StringType || !g.namesAnchor(tokens, i) {
		g.marks = 0
	}
	return ""
}

// namesAnchor reports whether the token is the name after an "&".
func (g *shapeGuard) namesAnchor(tokens token.Tokens, i int) bool {
	return i > 0 && tokens[i-1].Type == token.AnchorType
}

func (g *shapeGuard) pathLength() int {
	if len(g.frames) == 0 {
		return 1
	}
	return g.frames[len(g.frames)-1].path
}

func (g *shapeGuard) closeBracket() {
	g.flowKeys = 0
	if g.flow > 0 {
		g.flow--
		g.frames = g.frames[:len(g.frames)-1]
	}
}

// enterBlock makes the mapping or list that starts in this column the
// innermost one.
func (g *shapeGuard) enterBlock(column int) *shapeFrame {
	for n := len(g.frames); n > 0 && g.frames[n-1].column > column; n-- {
		g.frames = g.frames[:n-1]
	}
	if n := len(g.frames); n == 0 || g.frames[n-1].column != column {
		base := g.pathLength()
		g.frames = append(g.frames, shapeFrame{column: column, base: base, path: base + 8})
	}
	return &g.frames[len(g.frames)-1]
}

// key counts a key; tk is the token before its colon.
func (g *shapeGuard) key(tk *token.Token) string {
	length := utf8.RuneCountInString(tk.Value)
	if length > maxYAMLKeyLength {
		return "a key is longer than 1024 characters"
	}
	keys := &g.flowKeys
	if g.flow == 0 {
		keys = &g.enterBlock(tk.Position.Column).keys
	}
	if *keys++; *keys > maxYAMLKeys {
		return "a mapping has more than 2000 keys"
	}
	if n := len(g.frames); n > 0 {
		g.frames[n-1].path = g.frames[n-1].base + len(tk.Value) + 3
	}
	return ""
}
