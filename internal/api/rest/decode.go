package rest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/jsonscan"
	"github.com/tasker-go/tasker/internal/wording"
)

// decoder reads a JSON body into a struct of package client in one pass. It differs from
// encoding/json in that it tells which fields were given, that the last of a repeated key
// counts even if it is null, that fields not given become zero, and that a raw value is a
// piece of the body. Texts that are equal to the former ones are kept.
type decoder struct {
	text  []byte
	scan  *jsonscan.Scanner
	fault *mismatch  // the first one
	stray []strayKey // up to maxStray
	done  bool       // the end of the text, or its first fault
}

// strayKey is a key that the body's type does not have, with the known one that it may be a
// misspelling of.
type strayKey struct{ path, near string }

// maxStray bounds the unknown keys that are named.
const maxStray = 5

// mismatch is a value of another JSON type than its field, or a text that is none of its field.
type mismatch struct {
	field, problem string
	text           bool
}

// fieldSet holds a bit for each field of a struct.
type fieldSet uint64

// decodeBody reads a body into the struct that v points to. Unknown keys are skipped and
// returned.
func decodeBody(text []byte, v any) (given fieldSet, stray []strayKey, err error) {
	if !utf8.Valid(text) {
		return 0, nil, &failure{status: http.StatusBadRequest, code: codeJSON, message: "The body is not UTF-8"}
	}
	d := decoder{text: text, scan: jsonscan.New(text)}
	into := reflect.ValueOf(v).Elem()
	if t, ok := d.next(); ok && t.Kind == jsonscan.Object {
		given = d.object(structOf(into.Type()), into)
	} else if ok {
		if d.skip(t); !d.isNull(t) {
			d.wrong("The body must be a JSON object, not " + d.typeOf(t))
		}
	}
	d.next() // there is nothing after the value
	switch err := d.scan.Err(); {
	case err != nil:
		return 0, nil, &failure{status: http.StatusBadRequest, code: codeJSON, message: "The body is not JSON: " + strings.TrimPrefix(err.Error(), "read JSON: ")}
	case d.fault != nil && d.fault.text:
		return 0, nil, badRequest(d.fault.field + ": " + d.fault.problem)
	case d.fault != nil:
		return 0, nil, unprocessable(strings.TrimPrefix(d.fault.field+" ", " ") + d.fault.problem)
	}
	return given, d.stray, nil
}

// reader reads the value that begins with t.
type reader func(d *decoder, t jsonscan.Token, v reflect.Value)

// structure is the JSON form of a struct.
type structure struct {
	fields []structField
	byName map[string]int
}

type structField struct {
	name  string
	index []int
	read  reader
}

var structures sync.Map // of *structure by reflect.Type

// structOf returns the JSON form of a struct type with at most 64 fields.
func structOf(t reflect.Type) *structure {
	if known, ok := structures.Load(t); ok {
		return known.(*structure) //nolint:errcheck,forcetypeassert // the only type in it
	}
	s := &structure{byName: map[string]int{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || f.Anonymous {
			continue
		}
		s.byName[name] = len(s.fields)
		s.fields = append(s.fields, structField{name: name, index: f.Index, read: readerOf(f.Type, f.Tag)})
	}
	structures.Store(t, s)
	return s
}

func (s *structure) names() []string {
	names := make([]string, len(s.fields))
	for i := range s.fields {
		names[i] = s.fields[i].name
	}
	return names
}

// object reads the rest of an object, and returns the fields given with another value than
// null.
func (d *decoder) object(s *structure, v reflect.Value) (given fieldSet) {
	var present fieldSet
	for t, ok := d.next(); ok && t.Kind != jsonscan.End; t, ok = d.next() {
		key := jsonscan.Text(d.text, t)
		if t, ok = d.next(); !ok {
			break
		}
		no, known := s.byName[string(key)]
		if !known {
			if len(d.stray) < maxStray {
				d.stray = append(d.stray, strayKey{printable(string(key)), wording.Misspelt(string(key), s.names())})
			}
			d.skip(t)
			continue
		}
		present, given = present|1<<no, given|1<<no
		if d.member(&s.fields[no], t, v); d.isNull(t) {
			given &^= 1 << no
		}
	}
	for no := range s.fields {
		if present&(1<<no) == 0 {
			field(v, s.fields[no].index).SetZero()
		}
	}
	return given
}

func field(v reflect.Value, index []int) reflect.Value {
	if len(index) == 1 {
		return v.Field(index[0])
	}
	return v.FieldByIndex(index)
}

// next returns the next token; false after the last one and from the first fault on.
func (d *decoder) next() (t jsonscan.Token, ok bool) {
	if d.done {
		return t, false
	}
	t, ok = d.scan.Next()
	d.done = !ok
	return t, ok
}

// member reads the value of a field, and completes what was found in it.
func (d *decoder) member(f *structField, t jsonscan.Token, v reflect.Value) {
	before, strays := d.fault, len(d.stray)
	f.read(d, t, field(v, f.index))
	if d.fault != nil && before == nil {
		d.fault.field = strings.TrimSuffix(f.name+"."+d.fault.field, ".")
	}
	for i := strays; i < len(d.stray); i++ {
		d.stray[i].path = f.name + "." + d.stray[i].path
	}
}

// skip moves to the end of the value that begins with t, and returns the value.
func (d *decoder) skip(t jsonscan.Token) []byte {
	start, end := t.Start, t.End
	switch t.Kind {
	case jsonscan.String:
		return d.text[start-1 : end+1]
	case jsonscan.Array, jsonscan.Object:
		for open := 1; open > 0; {
			inner, ok := d.next()
			if !ok {
				return nil
			}
			switch inner.Kind {
			case jsonscan.Array, jsonscan.Object:
				open++
			case jsonscan.End:
				open--
			}
			end = inner.End
		}
	}
	return d.text[start:end]
}

func (d *decoder) isNull(t jsonscan.Token) bool {
	return t.Kind == jsonscan.Literal && d.text[t.Start] == 'n'
}

// refuse skips a value of the wrong type.
func (d *decoder) refuse(t jsonscan.Token) {
	d.skip(t)
	d.wrong("must not be of JSON type " + d.typeOf(t))
}

func (d *decoder) typeOf(t jsonscan.Token) string {
	switch t.Kind {
	case jsonscan.String:
		return "string"
	case jsonscan.Array:
		return "array"
	case jsonscan.Object:
		return "object"
	case jsonscan.Integer, jsonscan.Decimal:
		return "number"
	}
	if d.isNull(t) {
		return "null"
	}
	return "bool"
}

// wrong records a fault.
func (d *decoder) wrong(problem string) {
	if d.fault == nil {
		d.fault = &mismatch{problem: problem}
	}
}

var (
	rawType         = reflect.TypeFor[json.RawMessage]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
)

// readerOf returns how to read a type that a body of package client has.
func readerOf(t reflect.Type, tag reflect.StructTag) reader {
	if t == rawType {
		return func(d *decoder, t jsonscan.Token, v reflect.Value) { v.SetBytes(d.skip(t)) }
	}
	read := readerOfValue(t, tag)
	return func(d *decoder, t jsonscan.Token, v reflect.Value) {
		if d.isNull(t) {
			v.SetZero()
			return
		}
		read(d, t, v)
	}
}

func readerOfValue(t reflect.Type, tag reflect.StructTag) reader {
	switch {
	case reflect.PointerTo(t).Implements(unmarshalerType):
		return readUnmarshaler
	case t.Kind() == reflect.Pointer:
		inner, to := readerOf(t.Elem(), tag), t.Elem()
		return func(d *decoder, t jsonscan.Token, v reflect.Value) {
			v.Set(reflect.New(to))
			inner(d, t, v.Elem())
		}
	case t.Kind() == reflect.Slice:
		most, _ := strconv.Atoi(tag.Get("maxItems"))
		return readSlice(t, most)
	case t.Kind() == reflect.Struct:
		return func(d *decoder, t jsonscan.Token, v reflect.Value) {
			if t.Kind != jsonscan.Object {
				d.skip(t)
				d.wrong("must be a JSON object")
				return
			}
			d.object(structOf(v.Type()), v)
		}
	case t.Kind() == reflect.Map:
		return readMap
	case t.Kind() == reflect.String:
		return readString
	case t.Kind() == reflect.Bool:
		return readBool
	}
	return readNumber
}

func readUnmarshaler(d *decoder, t jsonscan.Token, v reflect.Value) {
	raw := d.skip(t)
	if raw == nil {
		return
	}
	into := v.Addr().Interface()
	err := into.(json.Unmarshaler).UnmarshalJSON(raw) //nolint:errcheck,forcetypeassert // readerOfValue has checked it
	if err == nil {
		return
	}
	problem := clip(err.Error(), 300)
	if _, isTime := into.(*client.Time); !isTime || t.Kind != jsonscan.String {
		d.wrong("is wrong: " + problem)
	} else if d.fault == nil {
		d.fault = &mismatch{problem: problem, text: true}
	}
}

// readMap reads a map of any names, such as weights by key.
func readMap(d *decoder, t jsonscan.Token, v reflect.Value) {
	if t.Kind != jsonscan.Object {
		d.refuse(t)
		return
	}
	raw := d.skip(t)
	if raw == nil {
		return
	}
	if err := json.Unmarshal(raw, v.Addr().Interface()); err != nil {
		d.wrong("is wrong: " + clip(err.Error(), 300))
	}
}

func readString(d *decoder, t jsonscan.Token, v reflect.Value) {
	if t.Kind != jsonscan.String {
		d.refuse(t)
		return
	}
	if text := jsonscan.Text(d.text, t); v.String() != string(text) {
		v.SetString(string(text))
	}
}

func readBool(d *decoder, t jsonscan.Token, v reflect.Value) {
	if t.Kind != jsonscan.Literal {
		d.refuse(t)
		return
	}
	v.SetBool(d.text[t.Start] == 't')
}

func readNumber(d *decoder, t jsonscan.Token, v reflect.Value) {
	if t.Kind != jsonscan.Integer && t.Kind != jsonscan.Decimal {
		d.refuse(t)
		return
	}
	text := string(d.text[t.Start:t.End])
	if v.CanFloat() {
		n, err := strconv.ParseFloat(text, 64)
		if v.SetFloat(n); err == nil {
			return
		}
	} else if n, err := strconv.ParseInt(text, 10, v.Type().Bits()); err == nil {
		v.SetInt(n)
		return
	}
	d.wrong("must not be of JSON type number " + clip(text, 40))
}

// readSlice reads a list. Of one with more than most elements (0: any number) one element
// beyond is kept, and the others are skipped.
func readSlice(list reflect.Type, most int) reader {
	inner := readerOf(list.Elem(), "")
	return func(d *decoder, t jsonscan.Token, v reflect.Value) {
		if t.Kind != jsonscan.Array {
			d.refuse(t)
			return
		}
		v.Set(reflect.MakeSlice(list, 0, 0)) // of its own: the former one may be in use
		n := 0
		for t, ok := d.next(); ok && t.Kind != jsonscan.End; t, ok = d.next() {
			if most > 0 && n > most {
				d.skip(t)
				continue
			}
			v.Grow(1)
			v.SetLen(n + 1)
			inner(d, t, v.Index(n))
			n++
		}
	}
}
