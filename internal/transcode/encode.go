package transcode

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tasker-go/tasker/client"
)

// pascal are the enums whose values JSON spells in PascalCase.
var pascal = map[protoreflect.FullName]bool{"tasker.v1.DlqReason": true, "tasker.v1.DlqResolutionStatus": true}

// Encode is the reverse of [Decode]: the JSON object of a message. An unset field has no
// key, a list always has one.
func Encode(from proto.Message) (json.RawMessage, error) {
	return encode(from.ProtoReflect())
}

// EncodeList is Encode for the content of a field that is a list.
func EncodeList(from proto.Message, field protoreflect.Name) (json.RawMessage, error) {
	m := from.ProtoReflect()
	of := m.Descriptor().Fields().ByName(field)
	return listOf(m.Get(of).List(), of)
}

func encode(m protoreflect.Message) (json.RawMessage, error) {
	switch v := m.Interface().(type) {
	case *timestamppb.Timestamp:
		return json.Marshal(client.Time{Time: v.AsTime()})
	case *structpb.Struct:
		return Object(v)
	}
	object := map[string]json.RawMessage{}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.HasPresence() && !m.Has(field) {
			continue
		}
		var err error
		if field.IsList() {
			object[Key(field)], err = listOf(m.Get(field).List(), field)
		} else {
			object[Key(field)], err = jsonOf(m.Get(field), field)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.Name(), err)
		}
	}
	return json.Marshal(object)
}

func listOf(list protoreflect.List, field protoreflect.FieldDescriptor) (json.RawMessage, error) {
	elements := make([]json.RawMessage, list.Len())
	for i := range elements {
		var err error
		if elements[i], err = jsonOf(list.Get(i), field); err != nil {
			return nil, err
		}
	}
	return json.Marshal(elements)
}

func jsonOf(value protoreflect.Value, field protoreflect.FieldDescriptor) (json.RawMessage, error) {
	switch field.Kind() {
	case protoreflect.MessageKind:
		return encode(value.Message())
	case protoreflect.EnumKind:
		return json.Marshal(enumName(field.Enum(), value.Enum()))
	}
	if field.Kind() == protoreflect.BytesKind && !opaque[field.FullName()] {
		return json.Marshal(json.RawMessage(value.Bytes())) // a document, which it checks
	}
	return json.Marshal(value.Interface())
}

// EnumName is the name of a value in JSON; "" for the unspecified one and those that the
// interface does not have.
func EnumName(value protoreflect.Enum) string { return enumName(value.Descriptor(), value.Number()) }

func enumName(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) string {
	known := enum.Values().ByNumber(number)
	if known == nil || number == 0 {
		return ""
	}
	name := strings.ToLower(strings.TrimPrefix(string(known.Name()), prefixOf(enum)))
	if !pascal[enum.FullName()] {
		return name
	}
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
