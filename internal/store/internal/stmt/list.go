package stmt

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5/pgtype"
)

// List is a list of rows as a table expression of a statement,
// unnest(@name.a::int[], @name.b::text[]) name(a, b). Fields of T that are strings are
// sent as text, JSON too; a slice of numbers is the text of an array ({1,2}), a slice of
// strings one text with separators.
func List[T any](name string) string { return unnest[T](name, "", false) }

// OrderedList is List with a last column at, which counts the rows from 1 on.
func OrderedList[T any](name string) string { return unnest[T](name, "", true) }

// HiddenList is List with (select @name.a::int[]), which hides the number of rows from
// the planner.
func HiddenList[T any](name string) string { return unnest[T](name, "select ", false) }

// OrderedHiddenList is both.
func OrderedHiddenList[T any](name string) string { return unnest[T](name, "select ", true) }

func unnest[T any](name, hidden string, ordered bool) string {
	var arrays, names []string
	for _, f := range fieldsOf(reflect.TypeFor[T]()) {
		if f.sent.value == nil {
			wrong("the field %s has the type %s, which no column has", f.name, f.kind)
		}
		array := "@" + name + "." + f.name + "::" + f.sent.sqlType + "[]"
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

// list is a list of rows among the arguments of a statement.
type list struct {
	columns []listed
	bound   atomic.Pointer[binding] // of the latest type of rows: it does not change
}

// listed is an argument that is a column of a list.
type listed struct {
	place  int
	column string
}

// binding are the fields of a row type, one for each column of a list.
type binding struct {
	row    reflect.Type
	fields []*field
}

// put sets the arguments that are columns of the list: rows is a slice of structs.
func (l *list) put(values []any, rows any) {
	v := reflect.ValueOf(rows)
	if v.Kind() != reflect.Slice || v.Type().Elem().Kind() != reflect.Struct {
		wrong("want a slice of structs, got %T", rows)
	}
	bound := l.bound.Load()
	if row := v.Type().Elem(); bound == nil || bound.row != row {
		bound = l.bind(row)
		l.bound.Store(bound)
	}
	arrays := make([]array, len(l.columns))
	for i, f := range bound.fields {
		arrays[i] = array{v.UnsafePointer(), bound.row.Size(), v.Len(), f}
		values[l.columns[i].place] = &arrays[i]
	}
}

// bind finds the fields of the columns.
func (l *list) bind(row reflect.Type) *binding {
	b, fields := &binding{row: row}, fieldsOf(row)
	for _, c := range l.columns {
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == c.column })
		if at < 0 {
			wrong("no field of %s is the column %s", row, c.column)
		}
		b.fields = append(b.fields, &fields[at])
	}
	return b
}

// array is a field of all rows as an array of PostgreSQL. The driver reads it element by
// element, in place.
type array struct {
	rows  unsafe.Pointer
	size  uintptr // of a row
	count int
	field *field
}

// at is the field of a row.
func (a *array) at(i int) unsafe.Pointer {
	return unsafe.Add(a.rows, uintptr(i)*a.size+a.field.offset) // #nosec G103 -- a field of the row i
}

// Dimensions implements pgtype.ArrayGetter. A column of zero values that are null is null.
func (a *array) Dimensions() []pgtype.ArrayDimension {
	empty := a.field.omitZero
	for i := 0; empty && i < a.count; i++ {
		empty = a.field.sent.zero(a.at(i))
	}
	if empty {
		return nil
	}
	return []pgtype.ArrayDimension{{Length: int32(a.count), LowerBound: 1}} // #nosec G115 -- the wire format has this bound
}

// Index implements pgtype.ArrayGetter.
func (a *array) Index(i int) any {
	p := a.at(i)
	if a.field.omitZero && a.field.sent.zero(p) {
		return nil
	}
	return a.field.sent.value(p)
}

// IndexType implements pgtype.ArrayGetter.
func (a *array) IndexType() any { return a.field.sent.example }

// column is how the values of a Go type are sent.
type column struct {
	sqlType string
	example any
	value   func(unsafe.Pointer) any // of the field there
	zero    func(unsafe.Pointer) bool
}

// plain is for values V that the driver reads in place, through W.
func plain[V comparable, W any](sqlType string, at func(*V) W) column {
	return column{sqlType: sqlType, example: at(new(V)),
		value: func(p unsafe.Pointer) any { return at((*V)(p)) },
		zero:  func(p unsafe.Pointer) bool { return *(*V)(p) == *new(V) }}
}

// Values in place: they are as large as a pointer, so passing one to the driver allocates
// nothing, where the value itself would be copied to the heap.
type (
	uuidAt                               struct{ p *[16]byte } // a uuid.UUID would be written as text
	timeAt                               struct{ p *time.Time }
	textAt                               struct{ p *string }
	millisAt                             struct{ p *time.Duration }
	intAt[V int | int16 | int32 | int64] struct{ p *V }
)

// UUIDValue implements pgtype.UUIDValuer.
func (a uuidAt) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: *a.p, Valid: true}, nil }

// TimestamptzValue implements pgtype.TimestamptzValuer.
func (a timeAt) TimestamptzValue() (pgtype.Timestamptz, error) {
	return pgtype.Timestamptz{Time: *a.p, Valid: true}, nil
}

// TextValue implements pgtype.TextValuer.
func (a textAt) TextValue() (pgtype.Text, error) { return pgtype.Text{String: *a.p, Valid: true}, nil }

// Int64Value implements pgtype.Int64Valuer.
func (a millisAt) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: Millis(*a.p), Valid: true}, nil
}

// Int64Value implements pgtype.Int64Valuer.
func (a intAt[V]) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*a.p), Valid: true}, nil
}

func ints[V int | int16 | int32 | int64](sqlType string) column {
	return plain(sqlType, func(p *V) intAt[V] { return intAt[V]{p} })
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
		uuidType:     plain("uuid", func(p *[16]byte) uuidAt { return uuidAt{p} }),
		timeType:     plain("timestamptz", func(p *time.Time) timeAt { return timeAt{p} }),
		durationType: plain("bigint", func(p *time.Duration) millisAt { return millisAt{p} }),
		bytesType:    converted("bytea", func(b []byte) []byte { return b }, func(b []byte) bool { return b == nil }),
		rawType:      converted("text", func(b []byte) []byte { return b }, func(b []byte) bool { return b == nil }),

		reflect.TypeFor[[]int]():    converted("text", numbers, func(v []int) bool { return v == nil }),
		reflect.TypeFor[[]string](): converted("text", joined, func(v []string) bool { return len(v) == 0 }),
	}
	columnOfKind = map[reflect.Kind]column{
		reflect.Float64: plain("float8", func(p *float64) float64 { return *p }),
		reflect.Bool:    plain("boolean", func(p *bool) bool { return *p }), reflect.String: plain("text", func(p *string) textAt { return textAt{p} }),
		reflect.Int: ints[int]("int"), reflect.Int16: ints[int16]("smallint"), reflect.Int32: ints[int32]("int"), reflect.Int64: ints[int64]("bigint"),
	}
)

// columnOf returns how values of a type are sent; false if no column has it.
func columnOf(t reflect.Type) (c column, known bool) {
	if c, known = columnOfType[t]; known {
		return c, true
	}
	if t.Kind() == reflect.Pointer {
		if c, known = columnOf(t.Elem()); known {
			c = pointers(c)
		}
		return c, known
	}
	c, known = columnOfKind[t.Kind()]
	return c, known
}

// Millis rounds up, so that nothing is due early; negative durations are 0.
func Millis(d time.Duration) int64 {
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
