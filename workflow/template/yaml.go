package template

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/wording"
)

// nodeKind is the type of a node.
type nodeKind uint8

const (
	yamlNull nodeKind = iota
	yamlBool
	yamlInt
	yamlFloat
	yamlString
	yamlMap
	yamlList
)

var nodeKindNames = [...]string{
	yamlNull: "nothing", yamlBool: "a boolean", yamlInt: "an integer", yamlFloat: "a decimal number",
	yamlString: "a text", yamlMap: "a mapping", yamlList: "a list",
}

func (k nodeKind) String() string { return nodeKindNames[k] }

// node is one value of the file: aliases are followed, merge keys are
// merged, and it knows its place. Nodes behind an alias are shared, not
// copied; nothing changes a node once it is built.
type node struct {
	kind   nodeKind
	pos    position
	text   string      // of a scalar: as written, escapes and folds resolved
	number json.Number // of a number: its JSON form; "" for infinity and NaN
	fields []field
	index  map[string]int // of many fields, by key
	items  []*node
	size   int // bytes of content with all aliases followed
	height int // levels of nesting with all aliases followed
}

// field is one entry of a mapping, in file order.
type field struct {
	key   string
	pos   position // of the key
	value *node
}

// fewKeys is how many keys of a mapping are compared one by one; an index is made of more.
const fewKeys = 16

func (n *node) field(key string) *field {
	if n.index != nil {
		if i, ok := n.index[key]; ok {
			return &n.fields[i]
		}
		return nil
	}
	for i := range n.fields {
		if n.fields[i].key == key {
			return &n.fields[i]
		}
	}
	return nil
}

// add appends a field that the mapping does not have.
func (n *node) add(f field) {
	n.fields = append(n.fields, f)
	switch {
	case n.index != nil:
		n.index[f.key] = len(n.fields) - 1
	case len(n.fields) > fewKeys:
		n.index = make(map[string]int, 2*len(n.fields))
		for i := range n.fields {
			n.index[n.fields[i].key] = i
		}
	}
}

// empty reports whether a mapping or list has nothing in it.
func (n *node) empty() bool { return n.kind >= yamlMap && len(n.fields)+len(n.items) == 0 }

// converter builds nodes from the syntax tree of the parser.
type converter struct {
	reader  *reader
	anchors map[string]*node
	spare   []node // allocated and not used yet
	merged  int    // fields copied by merge keys
	full    bool   // a limit was passed; the tree is not used
}

func (c *converter) convert(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.AnchorNode:
		node := c.convert(n.Value)
		c.anchors[n.Name.GetToken().Value] = node
		return node
	case *ast.AliasNode:
		return c.alias(n)
	case *ast.TagNode:
		return c.tagged(n)
	case *ast.MappingNode:
		return c.mapping(n, n.Values)
	case *ast.MappingValueNode:
		return c.mapping(n, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		return c.list(n)
	case nil:
		return c.node(node{pos: position{1, 1}, size: expandedNodeBytes})
	}
	return c.node(c.scalar(n))
}

func (c *converter) alias(n *ast.AliasNode) *node {
	name := n.Value.GetToken().Value
	if node, ok := c.anchors[name]; ok {
		return node
	}
	at := tokenPosition(n.Start)
	c.reader.errorf(at, codeUndefinedAlias, "", "the alias *%s has no anchor &%[1]s before it", wording.Clip(name, 64))
	return &node{pos: at, size: expandedNodeBytes}
}

// tagged applies the standard tags; others are noted and have no effect.
func (c *converter) tagged(n *ast.TagNode) *node {
	at := tokenPosition(n.Start)
	node := &node{pos: at, size: expandedNodeBytes}
	if n.Value != nil {
		node = c.convert(n.Value)
	}
	switch tag := n.Start.Value; tag {
	case "!!str", "!!binary", "!!timestamp":
		if node.kind < yamlMap {
			text := *node
			text.kind, text.number = yamlString, ""
			return &text
		}
	case "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!":
	default:
		c.reader.warnf(at, codeType, "", "the tag %s is ignored", wording.Clip(tag, 64))
	}
	return node
}

// node keeps a node for the tree. Nodes are allocated many at a time, since a
// file has thousands of them.
func (c *converter) node(n node) *node {
	if len(c.spare) == 0 {
		c.spare = make([]node, 32)
	}
	kept := &c.spare[0]
	*kept, c.spare = n, c.spare[1:]
	return kept
}

func (c *converter) scalar(n ast.Node) node {
	tk := n.GetToken()
	node := node{kind: yamlString, pos: tokenPosition(tk), text: tk.Value}
	switch n := n.(type) {
	case *ast.NullNode:
		node.kind, node.text = yamlNull, ""
	case *ast.BoolNode:
		node.kind = yamlBool
	case *ast.IntegerNode:
		node.integer(n)
	case *ast.FloatNode:
		node.float(n)
	case *ast.InfinityNode, *ast.NanNode:
		node.kind = yamlFloat
	case *ast.StringNode:
		node.text = n.Value
		if tk.Type != token.SingleQuoteType && tk.Type != token.DoubleQuoteType {
			node.exponent()
		}
	case *ast.LiteralNode:
		node.text = n.Value.Value
		node.pos = tokenPosition(n.Start)
	}
	node.text = strings.ToValidUTF8(node.text, "\uFFFD")
	if strings.ContainsRune(node.text, 0) {
		c.reader.errorf(node.pos, codeSyntax, "", "a text may not contain the NUL character")
	}
	node.size = expandedNodeBytes + len(node.text)
	return node
}

// integer fills in a whole number. A number with leading zeros is a text, as in YAML 1.2
// processors without octal numbers: an article number such as 00417 is unchanged.
func (n *node) integer(from *ast.IntegerNode) {
	digits := strings.TrimLeft(n.text, "+-")
	if len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		return
	}
	switch v := from.Value.(type) {
	case int64, uint64:
		n.kind, n.number = yamlInt, json.Number(fmt.Sprint(v))
	}
}

// jsonNumberForm are the plain numbers of YAML 1.2 and JSON; the sign of an
// exponent may be missing and no digits have to precede or follow a point.
var jsonNumberForm = regexp.MustCompile(`^[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// exponent recognises numbers that the parser reads as texts: 1e3, which YAML 1.1 did not
// have, and integers beyond 64 bits.
func (n *node) exponent() {
	if n.text == "" || n.text[0] > '9' { // most texts; the pattern is slower
		return
	}
	if len(n.text) > maxNumberLength || !jsonNumberForm.MatchString(n.text) {
		return
	}
	n.decimal()
}

// float fills in a decimal number.
func (n *node) float(from *ast.FloatNode) {
	n.kind = yamlFloat
	switch {
	case math.IsInf(from.Value, 0) || math.IsNaN(from.Value):
	case len(n.text) <= maxNumberLength && jsonNumberForm.MatchString(n.text):
		n.decimal()
	default:
		n.number = jsonscan.Float(from.Value)
	}
}

// decimal converts a text in the form of a number; beyond all ranges it stays a text, as in
// other readers.
func (n *node) decimal() {
	_, err := strconv.ParseFloat(n.text, 64)
	if err != nil || jsonscan.CheckNumber(n.text) != nil {
		n.kind = yamlString
		return
	}
	n.kind, n.number = yamlFloat, jsonscan.Number(json.Number(strings.TrimPrefix(n.text, "+")))
}

func (c *converter) list(n *ast.SequenceNode) *node {
	made := c.node(node{kind: yamlList, pos: tokenPosition(n.Start), size: expandedNodeBytes,
		items: make([]*node, 0, len(n.Values))})
	for _, value := range n.Values {
		if c.full {
			break
		}
		item := c.convert(value)
		made.items = append(made.items, item)
		c.grow(made, item)
	}
	return made
}

func (c *converter) mapping(n ast.Node, values []*ast.MappingValueNode) *node {
	made := c.node(node{kind: yamlMap, pos: tokenPosition(n.GetToken()), size: expandedNodeBytes,
		fields: make([]field, 0, len(values))})
	var merges []*node
	for i, v := range values {
		if c.full {
			break
		}
		at := keyPosition(v.Key)
		if i == 0 && !isFlow(n) {
			made.pos = at
		}
		if isMergeKey(v.Key) {
			merges = append(merges, c.convert(v.Value))
			continue
		}
		key := c.key(v.Key)
		value := c.convert(v.Value)
		if first := made.field(key); first != nil {
			c.reader.errorf(at, codeDuplicateKey, "", "the key %.64q is already in this mapping, in line %d", key, first.pos.line)
			continue
		}
		made.add(field{key: key, pos: at, value: value})
		c.grow(made, value)
		made.size += len(key)
	}
	for _, m := range merges {
		c.merge(made, m)
	}
	return made
}

// merge adds the fields of a mapping, or of a list of mappings, that the
// target does not have; earlier entries of a list win.
func (c *converter) merge(into, from *node) {
	switch from.kind {
	case yamlNull:
	case yamlList:
		for _, item := range from.items {
			if item.kind == yamlList {
				c.reader.errorf(item.pos, codeType, "", "a merge key takes a mapping or a list of mappings")
				continue
			}
			c.merge(into, item)
		}
	case yamlMap:
		for _, f := range from.fields {
			if c.merged++; c.merged > maxExpandedBytes/expandedNodeBytes {
				c.limit(into.pos, "the merge keys of this file expand to too much")
				return
			}
			if into.field(f.key) == nil {
				into.add(f)
				c.grow(into, f.value)
				into.size += len(f.key)
			}
		}
	default:
		c.reader.errorf(from.pos, codeType, "", "a merge key takes a mapping or a list of mappings, not %s", from.kind)
	}
}

// grow adds the measures of a child and stops the conversion at the limits.
func (c *converter) grow(node, child *node) {
	node.size += child.size
	node.height = max(node.height, child.height+1)
	if node.size > maxExpandedBytes {
		c.limit(node.pos, "the aliases of this file expand to too much")
	}
	if node.height > maxYAMLDepth {
		c.limit(node.pos, "mappings and lists are nested too deeply")
	}
}

func (c *converter) limit(at position, complaint string) {
	if !c.full {
		c.full = true
		c.reader.errorf(at, codeTooLarge, "", "%s", complaint)
	}
}

// key is the text of a key; numbers and booleans are used as written, and an empty key in
// any spelling is null.
func (c *converter) key(n ast.Node) string {
	switch n := n.(type) {
	case *ast.MappingKeyNode:
		return c.key(n.Value)
	case *ast.AnchorNode:
		node := c.convert(n)
		return node.text
	case *ast.TagNode:
		return c.key(n.Value)
	case *ast.AliasNode:
		return c.alias(n).text
	case *ast.NullNode:
		return "null"
	case nil:
		return ""
	}
	node := c.scalar(n)
	return node.text
}

func isMergeKey(n ast.Node) bool {
	_, ok := n.(*ast.MergeKeyNode)
	return ok
}

func isFlow(n ast.Node) bool {
	m, ok := n.(*ast.MappingNode)
	return ok && m.IsFlowStyle
}

func keyPosition(n ast.MapKeyNode) position {
	if q, ok := n.(*ast.MappingKeyNode); ok && q.Value != nil {
		return tokenPosition(q.Value.GetToken())
	}
	return tokenPosition(n.GetToken())
}
