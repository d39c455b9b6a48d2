package stmt

import (
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5/pgtype"
)

// List is a list of rows as a table expression of a statement,
// unnest(@name.a::int[], @name.b::text[]) name(a, b). Fields of T that are strings are
// sent as text, JSON too; a slice of numbers is the text of an array ({1,2}), a slice of
// strings one text with separators.
func List[T any](name string) string { return list[T](name, "", false) }

// OrderedList is List with a last column at, which counts the rows from 1 on.
func OrderedList[T any](name string) string { return list[T](name, "", true) }

// HiddenList is List with (select @name.a::int[]), which hides the number of rows from
// the planner.
func HiddenList[T any](name string) string { return list[T](name, "select ", false) }

// OrderedHiddenList is both.
func OrderedHiddenList[T any](name string) string { return list[T](name, "select ", true) }

func list[T any](name, hidden string, ordered bool) string {
	var arrays, names []string
	for _, f := range fieldsOf(reflect.TypeFor[T]()) {
		array := "@" + name + "." + f.name + "::" + f.column().sqlType + "[]"
		if hidden != "" {
			array = "(" + hidden + array + ")"
		}
		arrays, names = append(arrays, array), append(names, f.name)
	}
	ordinality := ""
	if ordered {
		ordinality, names = " with ordinality", append(names, "at")
	}
	return "unnest(" + strings.Join(arrays, ", ") + ")" + ordinality + " " + name + "(" + strings.Join(names, ", ") + ")"
}

// Separator separates the strings of a list that is sent as one text. No such string may
// contain it.
const Separator = "\x1f"

// columns sets the arguments that are columns of a list: rows is a slice of structs.
func columns(values []any, list []listed, rows any) {
	v := reflect.ValueOf(rows)
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Struct {
		wrong("want a slice of structs, got %T", rows)
	}
	fields := fieldsOf(v.Type().Elem())
	for _, l := range list {
		for i := range fields {
			if f := &fields[i]; f.name == l.column {
				values[l.place] = f.array(v)
			}
		}
		if values[l.place] == nil {
			wrong("no field of %T is the column %s", rows, l.column)
		}
	}
}

// array is a field of all rows as an array of PostgreSQL. The driver reads it element by
// element, in place.
type array struct {
	rows     unsafe.Pointer
	size     uintptr // of a row
	offset   uintptr // of the field
	count    int
	column   column
	omitZero bool
}

func (f *field) array(rows reflect.Value) *array {
	return &array{rows.UnsafePointer(), rows.Type().Elem().Size(), f.offset, rows.Len(), f.column(), f.omitZero}
}

// at is the field of a row.
func (a *array) at(i int) unsafe.Pointer {
	return unsafe.Add(a.rows, uintptr(i)*a.size+a.offset) // #nosec G103 -- a field of the row i
}

// Dimensions implements pgtype.ArrayGetter. A column of zero values that are null is null.
func (a *array) Dimensions() []pgtype.ArrayDimension {
	empty := a.omitZero
	for i := 0; empty && i < a.count; i++ {
		empty = a.column.zero(a.at(i))
	}
	if empty {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(a.count), LowerBound: 1}} // #nosec G115 -- the wire format has this bound
}

// Index implements pgtype.ArrayGetter.
func (a *array) Index(i int) any {
	p := a.at(i)
	if a.omitZero && a.column.zero(p) {
		return nil
	}
	return a.column.value(p)
}

// IndexType implements pgtype.ArrayGetter.
func (a *array) IndexType() any { return a.column.example }

// column is how the values of a Go type are sent.
type column struct {
	sqlType string
	example any
	value   func(unsafe.Pointer) any // of the field there
	zero    func(unsafe.Pointer) bool
}

// columnOf is for values that the driver takes as they are.
func columnOf[V comparable](sqlType string) column {
	return converted(sqlType, func(v V) V { return v }, func(v V) bool { return v == *new(V) })
}

// converted is for values V that are sent as W.
func converted[V, W any](sqlType string, convert func(V) W, zero func(V) bool) column {
	return column{sqlType: sqlType, example: *new(W),
		value: func(p unsafe.Pointer) any { return convert(*(*V)(p)) },
		zero:  func(p unsafe.Pointer) bool { return zero(*(*V)(p)) }}
}

// pointers are nil, or point to values of another column.
func pointers(to column) column {
	value := to.value
	to.zero = func(p unsafe.Pointer) bool { return *(*unsafe.Pointer)(p) == nil }
	to.value = func(p unsafe.Pointer) any {
		if v := *(*unsafe.Pointer)(p); v != nil {
			return value(v)
		}
		return nil
	}
	return to
}

var (
	columnOfType = map[reflect.Type]column{
		uuidType:     columnOf[[16]byte]("uuid"), // a uuid.UUID would be written as text
		timeType:     columnOf[time.Time]("timestamptz"),
		durationType: converted("bigint", millis, func(d time.Duration) bool { return d == 0 }),
		bytesType:    converted("bytea", func(b []byte) []byte { return b }, func(b []byte) bool { return b == nil }),
		rawType:      converted("text", func(b []byte) []byte { return b }, func(b []byte) bool { return b == nil }),

		reflect.TypeFor[[]int]():    converted("text", numbers, func(v []int) bool { return v == nil }),
		reflect.TypeFor[[]string](): converted("text", joined, func(v []string) bool { return len(v) == 0 }),
	}
	columnOfKind = map[reflect.Kind]column{
		reflect.Bool: columnOf[bool]("boolean"), reflect.Int: columnOf[int]("int"), reflect.Int16: columnOf[int16]("smallint"),
		reflect.Int32: columnOf[int32]("int"), reflect.Int64: columnOf[int64]("bigint"), reflect.String: columnOf[string]("text"),
	}
)

// column returns how the field is sent; it panics if no column has its type.
func (f *field) column() column {
	c, known := ofType(f.kind)
	if !known {
		wrong("the field %s has the type %s, which no column has", f.name, f.kind)
	}
	if f.sqlType != "" {
		c.sqlType = f.sqlType
	}
	return c
}

func ofType(t reflect.Type) (c column, known bool) {
	if c, known = columnOfType[t]; known {
		return c, true
	}
	if t.Kind() == reflect.Pointer {
		c, known = ofType(t.Elem())
		return pointers(c), known
	}
	c, known = columnOfKind[t.Kind()]
	return c, known
}

// millis rounds up, so that nothing is due early; negative durations are 0.
func millis(d time.Duration) int64 {
	return int64((max(d, 0) + time.Millisecond - 1) / time.Millisecond)
}

// numbers writes {1,2}. Arrays of arrays cannot be parameters, so inner ones are sent as
// text.
func numbers(list []int) string {
	b := []byte{'{'}
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, '}'))
}

func joined(list []string) string { return strings.Join(list, Separator) }
