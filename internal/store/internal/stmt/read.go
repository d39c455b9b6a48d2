package stmt

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Querier is the part of a connection or a transaction that reads need.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Each calls f with every row of a call. The row is valid until f returns, its values
// remain. T is a struct whose fields are the columns, or the type of the only column. An
// error names a column without a field, and a field without a column.
func Each[T any](ctx context.Context, db Querier, c Call, f func(row *T)) error {
	rows, err := db.Query(ctx, c.SQL, c.Args...)
	if err != nil {
		return err
	}
	return Rows(f)(rows)
}

// All returns the rows of a call, as Each reads them; not nil.
func All[T any](ctx context.Context, db Querier, c Call) ([]T, error) {
	rows, err := db.Query(ctx, c.SQL, c.Args...)
	if err != nil {
		return nil, err
	}
	var list []T
	err = Into(&list)(rows)
	return list, err
}

// One returns the only row of a call, or pgx.ErrNoRows.
func One[T any](ctx context.Context, db Querier, c Call) (T, error) {
	var only T
	rows, err := db.Query(ctx, c.SQL, c.Args...)
	if err == nil {
		err = Row(&only)(rows)
	}
	return only, err
}

// Rows reads the rows of a queued call, as Each does.
func Rows[T any](f func(row *T)) func(pgx.Rows) error {
	return Checked(func(row *T) error {
		f(row)
		return nil
	})
}

// Checked is Rows that ends with the first error of f.
func Checked[T any](f func(row *T) error) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		defer rows.Close()
		var row, empty T
		var to targets
		for rows.Next() {
			if err := to.find(rows.FieldDescriptions(), reflect.TypeFor[T](), unsafe.Pointer(&row)); err != nil { // #nosec G103 -- of that type
				return err
			}
			row = empty
			if err := to.scan(rows); err != nil {
				return err
			}
			if err := f(&row); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// Into reads the rows of a queued call into a list, as All does.
func Into[T any](list *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*list = []T{}
		return Rows(func(row *T) { *list = append(*list, *row) })(rows)
	}
}

// Row reads the only row of a queued call; the error is pgx.ErrNoRows without one.
func Row[T any](into *T) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		found := 0
		err := Rows(func(row *T) {
			*into = *row
			found++
		})(rows)
		switch {
		case err != nil:
			return err
		case found == 0:
			return pgx.ErrNoRows
		case found > 1:
			return pgx.ErrTooManyRows
		}
		return nil
	}
}

// targets are where the columns of a row go.
type targets struct {
	fields []*field
	into   []any
	row    []any // into, without those that are null
}

// find determines the targets for a row of a type, once.
func (t *targets) find(columns []pgconn.FieldDescription, kind reflect.Type, row unsafe.Pointer) (err error) {
	if t.into != nil {
		return nil
	}
	if t.fields, err = fieldsFor(kind, columns); err != nil {
		return err
	}
	t.into = make([]any, len(t.fields), 2*len(t.fields))
	for i, f := range t.fields {
		t.into[i] = reflect.NewAt(f.read, unsafe.Add(row, f.offset)).Interface() // #nosec G103 -- a field of the row
	}
	t.row = t.into[len(t.into):]
	return nil
}

// answers are the columns of statements whose rows have a type, with their fields.
type answers []answer

type answer struct {
	columns []string
	fields  []*field
}

// answered are the answers of each type so far.
var answered sync.Map // reflect.Type → answers

// fieldsFor returns the fields of a type for the columns of a row.
func fieldsFor(kind reflect.Type, columns []pgconn.FieldDescription) ([]*field, error) {
	var before answers
	if v, ok := answered.Load(kind); ok {
		before = v.(answers) //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	for i := range before {
		if slices.EqualFunc(before[i].columns, columns, func(name string, c pgconn.FieldDescription) bool { return name == c.Name }) {
			return before[i].fields, nil
		}
	}
	a, err := match(kind, columns)
	if err == nil { // a concurrent one may be lost: it is made again
		answered.Store(kind, append(slices.Clip(before), a))
	}
	return a.fields, err
}

func match(kind reflect.Type, columns []pgconn.FieldDescription) (a answer, err error) {
	fields := fieldsOf(kind)
	place := make(map[string]*field, len(fields))
	for i := range fields {
		place[cmp.Or(fields[i].name, columns[0].Name)] = &fields[i]
	}
	for _, c := range columns {
		f := place[c.Name]
		if f == nil {
			return a, fmt.Errorf("read a row: no field of %s is the column %q", kind, c.Name)
		}
		a.columns, a.fields = append(a.columns, c.Name), append(a.fields, f)
		delete(place, c.Name)
	}
	for name, f := range place {
		if !f.optional {
			return a, fmt.Errorf("read a row: no column is the field %q of %s", name, kind)
		}
	}
	return a, nil
}

// scan reads the current row into the targets, which are zero.
func (t *targets) scan(rows pgx.Rows) error {
	t.row = append(t.row[:0], t.into...)
	for i, value := range rows.RawValues() {
		if value == nil && t.fields[i].omitZero {
			t.row[i] = nil // the driver leaves it alone
		}
	}
	return rows.Scan(t.row...)
}

// target is the type as which the driver reads a field: one with the same layout.
func (f *field) target(t reflect.Type) reflect.Type {
	switch {
	case t.Kind() == reflect.Pointer:
		return reflect.PointerTo(f.target(t.Elem()))
	case t == uuidType: // a uuid.UUID would be read as text
		return reflect.TypeFor[[16]byte]()
	case t == rawType: // a json.RawMessage would be parsed
		return bytesType
	case t == durationType && f.seconds:
		return reflect.TypeFor[seconds]()
	case t == durationType:
		return reflect.TypeFor[milliseconds]()
	}
	return t
}

// milliseconds reads a number of them.
type milliseconds time.Duration

// ScanInt64 implements pgtype.Int64Scanner.
func (m *milliseconds) ScanInt64(v pgtype.Int8) error {
	*m = milliseconds(v.Int64) * milliseconds(time.Millisecond)
	return nil
}

// seconds reads a number of them.
type seconds time.Duration

// ScanInt64 implements pgtype.Int64Scanner.
func (s *seconds) ScanInt64(v pgtype.Int8) error {
	*s = seconds(v.Int64) * seconds(time.Second)
	return nil
}

// ScanFloat64 implements pgtype.Float64Scanner.
func (s *seconds) ScanFloat64(v pgtype.Float8) error {
	*s = seconds(v.Float64 * float64(time.Second))
	return nil
}
