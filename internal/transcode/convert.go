package transcode

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tasker-go/tasker/client"
)

// spellings are the keys of JSON that differ from the names of fields.
var spellings = map[protoreflect.FullName]string{
	"tasker.v1.Task.state":                         "status",
	"tasker.v1.Step.state":                         "current_state",
	"tasker.v1.StepAuditRecord.step_uuid":          "workflow_step_uuid",
	"tasker.v1.WorkerHandlerMetadata.handler_name": "name",
}

// opaque are the fields of bytes that are no JSON documents, and texts of base64 in JSON.
var opaque = map[protoreflect.FullName]bool{"tasker.session.v1.Report.result_bytes": true}

// Key is the name of a field in JSON.
func Key(field protoreflect.FieldDescriptor) string {
	if key, differs := spellings[field.FullName()]; differs {
		return key
	}
	return string(field.Name())
}

// Decode sets the fields of a message from the JSON object of an answer, whose keys are the
// names of the fields. Null and missing keys leave a field unset, and so do other keys. A
// number that a Struct cannot carry is an [*InexactError].
func Decode(body []byte, into proto.Message) error {
	_, err := decode(body, into, "", false)
	return err
}

// DecodeField is [Decode] for an answer that is the content of one field: an array, or the
// object of a message. Without a field it is Decode.
func DecodeField(body []byte, into proto.Message, field protoreflect.Name) error {
	_, err := decode(body, into, field, false)
	return err
}

// DecodeLeaving is [DecodeField] that leaves each Struct unset which cannot carry a number, and
// says which.
func DecodeLeaving(body []byte, into proto.Message, field protoreflect.Name) ([]*InexactError, error) {
	return decode(body, into, field, true)
}

func decode(body []byte, into proto.Message, field protoreflect.Name, leaves bool) ([]*InexactError, error) {
	d, m := &decoding{leaves: leaves}, into.ProtoReflect()
	fill := d.fill
	if field != "" {
		fill = func(m protoreflect.Message, body json.RawMessage) error {
			return d.set(m, m.Descriptor().Fields().ByName(field), body)
		}
	}
	if err := fill(m, body); err != nil {
		return nil, fmt.Errorf("convert an answer to %s: %w", m.Descriptor().Name(), err)
	}
	return d.left, nil
}

// decoding is the conversion of one answer.
type decoding struct {
	leaves bool // an inexact Struct stays unset and is one of left
	left   []*InexactError
}

func (d *decoding) fill(m protoreflect.Message, object json.RawMessage) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil {
		return err
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		key := Key(field)
		if err := d.set(m, field, values[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

func (d *decoding) set(m protoreflect.Message, field protoreflect.FieldDescriptor, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if !field.IsList() {
		value, err := d.valueOf(m.NewField(field), field, raw)
		if err == nil && value.IsValid() {
			m.Set(field, value)
		}
		return err
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(raw, &elements); err != nil {
		return err
	}
	list := m.Mutable(field).List()
	for _, element := range elements {
		value, err := d.valueOf(list.NewElement(), field, element)
		if err != nil {
			return err
		}
		list.Append(value)
	}
	return nil
}

// valueOf reads one value; fresh is the empty one where it is a message. A value that is not
// valid stands for an unset field.
func (d *decoding) valueOf(fresh protoreflect.Value, field protoreflect.FieldDescriptor,
	raw json.RawMessage) (protoreflect.Value, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return d.messageOf(fresh, field, raw)
	case protoreflect.EnumKind:
		return scalar(raw, func(name string) protoreflect.Value {
			return protoreflect.ValueOfEnum(EnumNumber(field.Enum(), name))
		})
	case protoreflect.StringKind:
		return scalar(raw, protoreflect.ValueOfString)
	case protoreflect.BytesKind:
		if !opaque[field.FullName()] {
			return protoreflect.ValueOfBytes(raw), nil // a document
		}
		return scalar(raw, protoreflect.ValueOfBytes)
	case protoreflect.BoolKind:
		return scalar(raw, protoreflect.ValueOfBool)
	case protoreflect.Int32Kind:
		return scalar(raw, protoreflect.ValueOfInt32)
	case protoreflect.Int64Kind:
		return scalar(raw, protoreflect.ValueOfInt64)
	case protoreflect.Uint32Kind:
		return scalar(raw, protoreflect.ValueOfUint32)
	case protoreflect.Uint64Kind:
		return scalar(raw, protoreflect.ValueOfUint64)
	case protoreflect.DoubleKind:
		return scalar(raw, protoreflect.ValueOfFloat64)
	}
	return protoreflect.Value{}, fmt.Errorf("no conversion to %s", field.Kind())
}

// scalar reads a value without parts.
func scalar[T any](raw json.RawMessage, of func(T) protoreflect.Value) (protoreflect.Value, error) {
	var value T
	err := json.Unmarshal(raw, &value)
	return of(value), err
}

// messageOf reads a timestamp, a Struct or another message.
func (d *decoding) messageOf(fresh protoreflect.Value, field protoreflect.FieldDescriptor,
	raw json.RawMessage) (protoreflect.Value, error) {
	m := fresh.Message()
	switch m.Interface().(type) {
	case *timestamppb.Timestamp:
		var at client.NaiveTime // which some answers have
		if err := at.UnmarshalJSON(raw); err != nil {
			return fresh, err
		}
		return protoreflect.ValueOfMessage(timestamppb.New(at.Time).ProtoReflect()), nil
	case *structpb.Struct:
		object, err := structOf(Key(field), raw)
		if inexact, is := errors.AsType[*InexactError](err); is && d.leaves {
			d.left = append(d.left, inexact)
			return protoreflect.Value{}, nil
		}
		if err != nil || object == nil {
			return protoreflect.Value{}, err
		}
		return protoreflect.ValueOfMessage(object.ProtoReflect()), nil
	}
	return fresh, d.fill(m, raw)
}

// EnumNumber finds the value that a state, reason or status is called in JSON, in snake_case
// or PascalCase; 0, the unspecified one, for a name that the interface does not have.
func EnumNumber(enum protoreflect.EnumDescriptor, name string) protoreflect.EnumNumber {
	full := prefixOf(enum) + strings.ToUpper(snake(name))
	if value := enum.Values().ByName(protoreflect.Name(full)); value != nil {
		return value.Number()
	}
	return 0
}

// prefixOf is the beginning of the names of an enum's values: TASK_STATE_ of TaskState.
func prefixOf(enum protoreflect.EnumDescriptor) string {
	return strings.ToUpper(snake(string(enum.Name()))) + "_"
}

// snake spells a PascalCase name in snake_case; other names stay.
func snake(name string) string {
	var b strings.Builder
	for i, c := range name {
		if i > 0 && c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(c)
	}
	return strings.ToLower(b.String())
}
