package codegen

import (
	"strconv"
	"strings"
	"unicode"
)

// words splits a name at all that is no ASCII letter or digit, and where an upper-case
// letter follows another character.
func words(name string) (parts []string) {
	begin := 0
	cut := func(end, next int) {
		if end > begin {
			parts = append(parts, name[begin:end])
		}
		begin = next
	}
	for i, c := range name {
		switch {
		case c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c):
			cut(i, i+len(string(c)))
		case i > begin && unicode.IsUpper(c) && !unicode.IsUpper(rune(name[i-1])):
			cut(i, i)
		}
	}
	cut(len(name), len(name))
	return parts
}

// initialisms are written in capitals in Go.
var initialisms = set("api csv html http https id ip json sql uri url uuid xml")

func set(list string) map[string]bool {
	m := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		m[word] = true
	}
	return m
}

// pascal makes OrderItem of order_item.
func pascal(name string) string {
	var b strings.Builder
	for _, w := range words(name) {
		b.WriteString(strings.ToUpper(w[:1]) + w[1:])
	}
	return begun(b.String(), "X")
}

// goName is pascal with the initialisms of Go.
func goName(name string) string {
	parts := words(name)
	for i, w := range parts {
		if initialisms[strings.ToLower(w)] {
			parts[i] = strings.ToUpper(w)
		}
	}
	return pascal(strings.Join(parts, "_"))
}

// camel makes orderItem of order_item.
func camel(name string) string {
	parts := words(name)
	if len(parts) == 0 {
		return "x"
	}
	first := strings.ToLower(parts[0])
	if len(parts) == 1 {
		return begun(first, "x")
	}
	return begun(first+pascal(strings.Join(parts[1:], "_")), "x")
}

// snake makes order_item of orderItem.
func snake(name string) string {
	return begun(strings.ToLower(strings.Join(words(name), "_")), "x")
}

// begun puts a letter before what does not begin with one.
func begun(name, letter string) string {
	if name == "" || unicode.IsDigit(rune(name[0])) {
		return letter + name
	}
	return name
}

// reserved are the words that cannot be names, or that generated code uses itself: of all
// languages together, so that a template has similar names in all.
var reserved = set(`and as assert async await bool break case catch class cls const continue
	context data debugger def default del delete dict do elif else enum except export extends
	false finally float for from from_dict function global if implements import in instanceof
	int interface is item key lambda let list match new nonlocal none not null object or package
	pass print private protected public raise results return self static str super switch this
	throw to_dict true try type typeof unittest var void while with yield arguments eval
	Any Array Dict Error False List Literal Mapping None NotImplementedError Optional Promise
	Register True TypedDict String Number Boolean Object TestRegister TestTypes HandlersTest TypesTest`)

// escaped adds what makes a name of a reserved word.
func escaped(name string) string {
	if reserved[name] {
		return name + "_"
	}
	return name
}

// names hands out names that differ.
type names map[string]bool

// pick returns the name, or one made from it that is free.
func (n names) pick(name string) string {
	free := name
	for i := 2; n[free]; i++ {
		free = name + strconv.Itoa(i)
	}
	n[free] = true
	return free
}
