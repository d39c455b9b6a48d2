package stmt

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/google/uuid"
)

// field is a column of a struct, or of a row with one column.
type field struct {
	name     string
	kind     reflect.Type
	offset   uintptr
	sent     column       // sqlType is "" if no column has the type
	read     reflect.Type // as which the driver reads it
	omitZero bool
	seconds  bool
	optional bool // it may have no column
}

// known are the fields of row types.
var known sync.Map // reflect.Type → []field

// fieldsOf returns the columns of a type. That of a type with one column has no name.
func fieldsOf(t reflect.Type) []field {
	if list, ok := known.Load(t); ok {
		return list.([]field) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	list := []field{{kind: t}}
	if t.Kind() == reflect.Struct && t != timeType {
		list = readFields(t, 0)
	}
	for i := range list {
		f := &list[i]
		sqlType := f.sent.sqlType
		if c, ok := columnOf(f.kind); ok {
			f.sent, f.sent.sqlType = c, cmp.Or(sqlType, c.sqlType)
		}
		f.read = f.target(f.kind)
	}
	known.Store(t, list)
	return list
}

func readFields(t reflect.Type, at uintptr) (list []field) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("sql"), ",")
		named := strings.Split(options, ",")
		switch {
		case name == "-":
			continue
		case slices.Contains(named, "inline") || f.Anonymous && f.Type.Kind() == reflect.Struct:
			for _, inner := range readFields(f.Type, at+f.Offset) {
				inner.optional = inner.optional || !f.Anonymous
				inner.omitZero = inner.omitZero || slices.Contains(named, "omitzero")
				list = append(list, inner)
			}
			continue
		case name == "":
			name = snake(f.Name)
		}
		one := field{name: name, kind: f.Type, offset: at + f.Offset}
		for _, option := range named {
			switch option {
			case "omitzero":
				one.omitZero = true
			case "seconds":
				one.seconds = true
			default:
				one.sent.sqlType = option
			}
		}
		list = append(list, one)
	}
	return list
}

// snake writes TaskUUID as task_uuid.
func snake(name string) string {
	var b strings.Builder
	letters := []rune(name)
	for i, c := range letters {
		after := i > 0 && !unicode.IsUpper(letters[i-1])
		before := i > 0 && i+1 < len(letters) && unicode.IsLower(letters[i+1])
		if unicode.IsUpper(c) && (after || before) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

var (
	uuidType     = reflect.TypeFor[uuid.UUID]()
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	bytesType    = reflect.TypeFor[[]byte]()
)
