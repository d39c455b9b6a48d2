package config

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/deploymode"
)

// readKeys reads all keys, in the order of the documentation.
func readKeys() []Key {
	var current, older annotations
	current.table("", reflect.TypeFor[Loaded](), []int{})
	older.table("", reflect.TypeFor[olderSpellings](), nil)
	for i := range older.keys {
		older.keys[i].outdate()
	}
	return append(current.keys, older.keys...)
}

// annotations reads keys off the tags of the fields that hold them; doc.go says
// what the tags mean.
type annotations struct {
	keys []Key
	tags []reflect.StructTag // of the tables around a field, and then its own
}

// table reads the keys of a struct and of the structs in it. Index leads to the
// struct in a Loaded; it is nil where no field holds the keys.
func (a *annotations) table(path string, table reflect.Type, index []int) {
	for i := range table.NumField() {
		field, at, own := table.Field(i), path, []int(nil)
		if name, ok := field.Tag.Lookup("toml"); ok {
			at = joinPath(path, name)
		} else if !field.Anonymous {
			continue
		}
		if index != nil && field.Name != "_" {
			own = append(slices.Clone(index), i)
		}
		a.tags = append(a.tags, field.Tag)
		if field.Type.Kind() == reflect.Struct {
			a.table(at, field.Type, own)
		} else {
			a.key(at, field.Type, own)
		}
		a.tags = a.tags[:len(a.tags)-1]
	}
}

// key reads one key, and those of the elements of an array of tables.
func (a *annotations) key(path string, field reflect.Type, index []int) {
	k := Key{
		Path: path, Type: typeOf(field, a.text("type")), Description: a.text("doc"), Impact: a.text("effect"), Status: StatusActive,
		Enum: a.list("oneof", ","), Env: a.list("env", ","), Reloadable: a.text("reload") != "",
		connection: field == reflect.TypeFor[DSN](), unit: unitOf(path), index: index, rule: a.rule(),
	}
	k.Secret = k.connection || a.text("secret") != ""
	if text, ok := a.lookup("default"); ok {
		k.Default = defaultOf(k.Type, text)
	}
	if least, err := strconv.ParseFloat(a.text("min"), 64); err == nil {
		k.Min, k.Bounded = least, true
		k.Max, _ = strconv.ParseFloat(a.text("max"), 64)
	}
	for _, pair := range a.list("alias", ",") {
		if k.Aliases == nil {
			k.Aliases = map[string]string{}
		}
		other, word, _ := strings.Cut(pair, "=")
		k.Aliases[other] = word
	}
	for _, other := range a.list("sets", " ") {
		if strings.HasPrefix(other, ".") {
			other = k.table()[:strings.LastIndexByte(k.table(), '.')] + other
		}
		k.Sets = append(k.Sets, other)
	}
	if feature, ok := a.inherited("planned"); ok {
		k.Status, k.Reason = statusPlanned, feature
	}
	if why, ok := a.inherited("ignored"); ok {
		k.Status, k.Reason, k.Impact = statusIgnored, why, ""
	}
	k.Root, _, _ = strings.Cut(path, ".")
	k.Member, k.Rule = strings.Contains(path, "[]"), k.inWords()
	a.keys = append(a.keys, k)
	if k.Type == typeTables {
		a.table(path+"[]", field.Elem(), nil)
	}
}

// lookup finds a tag of the present field.
func (a *annotations) lookup(name string) (text string, ok bool) {
	text, ok = a.tags[len(a.tags)-1].Lookup(name)
	return a.fill(text), ok
}

func (a *annotations) text(name string) string {
	text, _ := a.lookup(name)
	return text
}

func (a *annotations) list(name, separator string) []string {
	text, ok := a.lookup(name)
	if !ok {
		return nil
	}
	return strings.Split(text, separator)
}

// inherited finds a tag of the present field or else of the nearest table around it.
func (a *annotations) inherited(name string) (text string, ok bool) {
	for _, tag := range slices.Backward(a.tags) {
		if text, ok = tag.Lookup(name); ok {
			return a.fill(text), true
		}
	}
	return "", false
}

var placeholder = regexp.MustCompile(`<[a-z_]+>`)

// fill replaces <name> by the tag of that name of a table around the field.
func (a *annotations) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(of string) string {
		if filling, ok := a.inherited(strings.Trim(of, "<>")); ok {
			return filling
		}
		return of
	})
}

// rule is the condition on the strings of a key.
func (a *annotations) rule() *textRule {
	if pattern, ok := a.lookup("match"); ok {
		return matching(a.text("must"), pattern)
	}
	return ruleNamed(a.text("rule"))
}

// typeOf is the type of the values of a field, in a file. A duration is written as an
// integer, unless its tag says that it may be a fraction.
func typeOf(field reflect.Type, tagged string) string {
	kind := field.Kind()
	switch {
	case field == reflect.TypeFor[deploymode.Mode]():
		return typeMode
	case kind == reflect.Slice && field.Elem().Kind() == reflect.Struct:
		return typeTables
	case kind == reflect.Slice && field.Elem().Kind() == reflect.String:
		return typeStringList
	case kind == reflect.Slice:
		return typeIntList
	case kind == reflect.String:
		return typeString
	case kind == reflect.Bool:
		return typeBool
	case kind == reflect.Float64 || tagged == "float":
		return typeFloat
	}
	return typeInt
}

// defaultOf reads the default that a tag says; words of a list stand apart.
func defaultOf(t string, text string) any {
	switch t {
	case typeString, typeMode:
		return text
	case typeTables:
		return []map[string]any{}
	case typeStringList:
		return strings.Fields(text)
	case typeIntList:
		list := []int64{}
		for _, word := range strings.Fields(text) {
			n, _ := strconv.ParseInt(word, 10, 64)
			list = append(list, n)
		}
		return list
	}
	if value, ok := parseText(t, text); ok {
		return value
	}
	return nil
}

// decode fills the fields of the keys from the checked values.
func (l *Loaded) decode() {
	parts := reflect.ValueOf(l).Elem()
	for _, k := range theSchema().keys {
		if e, ok := l.entries[k.Path]; ok && k.index != nil {
			field := parts.FieldByIndex(k.index)
			if tables, ok := e.value.([]map[string]any); ok {
				field.Set(elements(field.Type(), tables))
				continue
			}
			field.Set(reflect.ValueOf(k.inNanoseconds(e.value)).Convert(field.Type()))
		}
	}
}

// elements are the values of an array of tables, whose members have been checked.
func elements(list reflect.Type, tables []map[string]any) reflect.Value {
	all := reflect.MakeSlice(list, len(tables), len(tables))
	for i, table := range tables {
		for j := range list.Elem().NumField() {
			if value, ok := table[list.Elem().Field(j).Tag.Get("toml")]; ok {
				field := all.Index(i).Field(j)
				field.Set(reflect.ValueOf(value).Convert(field.Type()))
			}
		}
	}
	return all
}

// inNanoseconds turns the value of a duration into nanoseconds; other values stay.
func (k *Key) inNanoseconds(value any) any {
	unit := max(k.unit, 1)
	switch v := value.(type) {
	case int64:
		return v * int64(unit)
	case float64:
		return v * float64(unit)
	case []int64:
		list := make([]time.Duration, len(v))
		for i, n := range v {
			list[i] = time.Duration(n) * unit
		}
		return list
	}
	return value
}

// unitOf is the unit that the name of a key ends with; 0 where it has none.
func unitOf(path string) time.Duration {
	units := map[string]time.Duration{"ms": time.Millisecond, "seconds": time.Second, "minutes": time.Minute, "hours": time.Hour, "days": 24 * time.Hour}
	return units[path[strings.LastIndexByte(path, '_')+1:]]
}
