package workflow

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// yamlKind is the type of a node.
type yamlKind uint8

const (
	yamlNull yamlKind = iota
	yamlBool
	yamlInt
	yamlFloat
	yamlString
	yamlMap
	yamlList
)

var yamlKindNames = [...]string{
	yamlNull: "nothing", yamlBool: "a boolean", yamlInt: "an integer", yamlFloat: "a decimal number",
	yamlString: "a text", yamlMap: "a mapping", yamlList: "a list",
}

func (k yamlKind) String() string { return yamlKindNames[k] }

// yamlNode is one value of the file: aliases are followed, merge keys are
// merged, and it knows its place. Nodes behind an alias are shared, not
// copied; nothing changes a node once it is built.
type yamlNode struct {
	kind   yamlKind
	pos    position
	text   string      // of a scalar: as written, escapes and folds resolved
	quoted bool        // of a text: in quotes or as a block
	number json.Number // of a number: its JSON form; "" for infinity and NaN
	fields []yamlField
	items  []*yamlNode
	size   int // bytes of content with all aliases followed
	height int // levels of nesting with all aliases followed
}

// yamlField is one entry of a mapping, in file order.
type yamlField struct {
	key   string
	pos   position // of the key
	value *yamlNode
}

func (n *yamlNode) field(key string) *yamlField {
	for i := range n.fields {
		if n.fields[i].key == key {
			return &n.fields[i]
		}
	}
	return nil
}

// yamlConverter builds nodes from the syntax tree of the parser.
type yamlConverter struct {
	reader  *templateReader
	anchors map[string]*yamlNode
	spare   []yamlNode // allocated and not used yet
	merged  int        // fields copied by merge keys
	full    bool       // a limit was passed; the tree is not used
}

// document returns the root, or nil when a limit was passed.
func (c *yamlConverter) document(body ast.Node) *yamlNode {
	root := c.convert(body)
	if c.full {
		return nil
	}
	return root
}

func (c *yamlConverter) convert(n ast.Node) *yamlNode {
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
		return c.node(yamlNode{pos: position{1, 1}, size: expandedNodeBytes})
	}
	return c.node(c.scalar(n))
}

func (c *yamlConverter) alias(n *ast.AliasNode) *yamlNode {
	name := n.Value.GetToken().Value
	if node, ok := c.anchors[name]; ok {
		return node
	}
	at := tokenPosition(n.Start)
	c.reader.errorf(at, CodeUndefinedAlias, "", "the alias *%s has no anchor &%[1]s before it", clip(name, 64))
	return &yamlNode{pos: at, size: expandedNodeBytes}
}

// tagged applies the standard tags; others are noted and have no effect.
func (c *yamlConverter) tagged(n *ast.TagNode) *yamlNode {
	at := tokenPosition(n.Start)
	node := &yamlNode{pos: at, size: expandedNodeBytes}
	if n.Value != nil {
		node = c.convert(n.Value)
	}
	switch tag := n.Start.Value; tag {
	case "!!str", "!!binary", "!!timestamp":
		if node.kind < yamlMap {
			text := *node
			text.kind, text.quoted, text.number = yamlString, true, ""
			return &text
		}
	case "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq", "!":
	default:
		c.reader.warnf(at, CodeType, "", "the tag %s is ignored", clip(tag, 64))
	}
	return node
}

// node keeps a node for the tree. Nodes are allocated many at a time, since a
// file has thousands of them.
func (c *yamlConverter) node(n yamlNode) *yamlNode {
	if len(c.spare) == 0 {
		c.spare = make([]yamlNode, 32)
	}
	kept := &c.spare[0]
	*kept, c.spare = n, c.spare[1:]
	return kept
}

func (c *yamlConverter) scalar(n ast.Node) yamlNode {
	tk := n.GetToken()
	node := yamlNode{kind: yamlString, pos: tokenPosition(tk), text: tk.Value}
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
		node.quoted = tk.Type == token.SingleQuoteType || tk.Type == token.DoubleQuoteType
		if !node.quoted {
			node.exponent()
		}
	case *ast.LiteralNode:
		node.text, node.quoted = n.Value.Value, true
		node.pos = tokenPosition(n.Start)
	}
	node.text = strings.ToValidUTF8(node.text, "\uFFFD")
	if strings.ContainsRune(node.text, 0) {
		c.reader.errorf(node.pos, CodeSyntax, "", "a text may not contain the NUL character")
	}
	node.size = expandedNodeBytes + len(node.text)
	return node
}

// integer fills in a whole number. A number with leading zeros is a text, as in YAML 1.2
// processors without octal numbers: an article number such as 00417 is unchanged.
func (n *yamlNode) integer(from *ast.IntegerNode) {
	digits := strings.TrimLeft(n.text, "+-")
	if len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9' {
		return
	}
	switch v := from.Value.(type) {
	case int64:
		n.kind, n.number = yamlInt, json.Number(strconv.FormatInt(v, 10))
	case uint64:
		n.kind, n.number = yamlInt, json.Number(strconv.FormatUint(v, 10))
	}
}

// jsonNumberForm are the plain numbers of YAML 1.2 and JSON; the sign of an
// exponent may be missing and no digits have to precede or follow a point.
var jsonNumberForm = regexp.MustCompile(`^[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`)

// exponent recognises numbers that the parser reads as texts: 1e3, which YAML 1.1 did not
// have, and integers beyond 64 bits.
func (n *yamlNode) exponent() {
	if n.text == "" || n.text[0] > '9' { // most texts; the pattern is slower
		return
	}
	if len(n.text) > maxNumberLength || !jsonNumberForm.MatchString(n.text) {
		return
	}
	n.decimal()
}

// float fills in a decimal number.
func (n *yamlNode) float(from *ast.FloatNode) {
	n.kind = yamlFloat
	switch {
	case math.IsInf(from.Value, 0) || math.IsNaN(from.Value):
	case len(n.text) <= maxNumberLength && jsonNumberForm.MatchString(n.text):
		n.decimal()
	default:
		n.number = floatNumber(from.Value)
	}
}

// decimal converts a text in the form of a number; beyond all ranges it stays a text, as in
// other readers.
func (n *yamlNode) decimal() {
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || CheckNumber(n.text) != nil {
		n.kind = yamlString
		return
	}
	n.kind, n.number = yamlFloat, decimalNumber(strings.TrimPrefix(n.text, "+"), f)
}

func (c *yamlConverter) list(n *ast.SequenceNode) *yamlNode {
	node := c.node(yamlNode{kind: yamlList, pos: tokenPosition(n.Start), size: expandedNodeBytes,
		items: make([]*yamlNode, 0, len(n.Values))})
	for _, value := range n.Values {
		if c.full {
			break
		}
		item := c.convert(value)
		node.items = append(node.items, item)
		c.grow(node, item)
	}
	return node
}

func (c *yamlConverter) mapping(n ast.Node, values []*ast.MappingValueNode) *yamlNode {
	node := c.node(yamlNode{kind: yamlMap, pos: tokenPosition(n.GetToken()), size: expandedNodeBytes,
		fields: make([]yamlField, 0, len(values))})
	seen := keyPlaces{node: node}
	var merges []*yamlNode
	for i, v := range values {
		if c.full {
			break
		}
		at := keyPosition(v.Key)
		if i == 0 && !isFlow(n) {
			node.pos = at
		}
		if isMergeKey(v.Key) {
			merges = append(merges, c.convert(v.Value))
			continue
		}
		key := c.key(v.Key)
		value := c.convert(v.Value)
		if first, twice := seen.find(key); twice {
			c.reader.errorf(at, CodeDuplicateKey, "", "the key %q is already in this mapping, in line %d", clip(key, 64), first.line)
			continue
		}
		seen.add(yamlField{key: key, pos: at, value: value})
		c.grow(node, value)
		node.size += len(key)
	}
	for _, m := range merges {
		c.merge(node, m, &seen)
	}
	return node
}

// merge adds the fields of a mapping, or of a list of mappings, that the
// target does not have; earlier entries of a list win.
func (c *yamlConverter) merge(into, from *yamlNode, seen *keyPlaces) {
	switch from.kind {
	case yamlNull:
	case yamlList:
		for _, item := range from.items {
			if item.kind == yamlList {
				c.reader.errorf(item.pos, CodeType, "", "a merge key takes a mapping or a list of mappings")
				continue
			}
			c.merge(into, item, seen)
		}
	case yamlMap:
		for _, f := range from.fields {
			if c.merged++; c.merged > maxExpandedBytes/expandedNodeBytes {
				c.limit(into.pos, "the merge keys of this file expand to too much")
				return
			}
			if _, has := seen.find(f.key); !has {
				seen.add(f)
				c.grow(into, f.value)
				into.size += len(f.key)
			}
		}
	default:
		c.reader.errorf(from.pos, CodeType, "", "a merge key takes a mapping or a list of mappings, not %s", from.kind)
	}
}

// grow adds the measures of a child and stops the conversion at the limits.
func (c *yamlConverter) grow(node, child *yamlNode) {
	node.size += child.size
	node.height = max(node.height, child.height+1)
	if node.size > maxExpandedBytes {
		c.limit(node.pos, "the aliases of this file expand to too much")
	}
	if node.height > maxYAMLDepth {
		c.limit(node.pos, "mappings and lists are nested too deeply")
	}
}

func (c *yamlConverter) limit(at position, complaint string) {
	if !c.full {
		c.full = true
		c.reader.errorf(at, CodeTooLarge, "", "%s", complaint)
	}
}

// key is the text of a key; numbers and booleans are used as written, and an empty key in
// any spelling is null.
func (c *yamlConverter) key(n ast.Node) string {
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

// keyPlaces finds the existing keys of a mapping. Most mappings have few, which are compared
// one by one; an index is made for those with many.
type keyPlaces struct {
	node  *yamlNode
	index map[string]position
}

const fewKeys = 16

func (k *keyPlaces) find(key string) (position, bool) {
	if k.index != nil {
		at, ok := k.index[key]
		return at, ok
	}
	if f := k.node.field(key); f != nil {
		return f.pos, true
	}
	return position{}, false
}

// add appends a field to the mapping.
func (k *keyPlaces) add(f yamlField) {
	k.node.fields = append(k.node.fields, f)
	switch {
	case k.index != nil:
		k.index[f.key] = f.pos
	case len(k.node.fields) > fewKeys:
		k.index = make(map[string]position, 2*len(k.node.fields))
		for _, f := range k.node.fields {
			k.index[f.key] = f.pos
		}
	}
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
