package grpcclient

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/transcode"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// asked is a call: the parameters of its path and its query, and the keys of its body, in
// one object with the names of the fields of the request.
type asked struct {
	verb string
	path []string
	keys map[string]json.RawMessage
	// cursor says that a list goes on by cursors.
	cursor bool
}

// read collects what is asked for; parameters that are no texts in the request are written
// as they are.
func (a *asked) read(m *method, parameters map[string]string, query url.Values, body []byte) error {
	a.keys = map[string]json.RawMessage{}
	if body != nil {
		if err := json.Unmarshal(body, &a.keys); err != nil {
			return fmt.Errorf("read the request: %w", err)
		}
	}
	fields := m.in.Descriptor().Fields()
	for name, values := range query {
		if len(values) > 1 { // repeated parameters are those of lists
			a.keys[name], _ = json.Marshal(values)
			continue
		}
		parameters[name] = values[0]
	}
	for name, value := range parameters {
		a.keys[name], _ = json.Marshal(value) // a text can be encoded
		if field := fields.ByName(protoreflect.Name(name)); field != nil {
			switch field.Kind() {
			case protoreflect.StringKind, protoreflect.EnumKind:
			default:
				a.keys[name] = json.RawMessage(value)
			}
		}
	}
	if change, is := requests[m.name]; is {
		return change(a)
	}
	return nil
}

// fill sets the fields of a request. A key that has none is an error.
func (a *asked) fill(in proto.Message) error {
	fields := in.ProtoReflect().Descriptor().Fields()
	for key, raw := range a.keys {
		field := fields.ByName(protoreflect.Name(key))
		switch {
		case string(raw) == "null":
		case field == nil:
			return a.notServed("no field " + key)
		case field.Kind() == protoreflect.EnumKind:
			if err := knownNames(field, raw); err != nil {
				return err
			}
		case field.Message() != nil && field.Message().FullName() == "google.protobuf.Struct":
			if err := a.fitsStruct(key, raw); err != nil {
				return err
			}
		}
	}
	object, err := json.Marshal(a.keys)
	if err == nil {
		err = transcode.Decode(object, in)
	}
	if inexact, is := errors.AsType[*transcode.InexactError](err); is {
		return a.notServed(fmt.Sprintf("no exact number %.64s in %s; send it as a text", inexact.Number, inexact.Path))
	}
	if err != nil {
		return badRequest("%v", err)
	}
	return nil
}

// badRequest is the refusal of REST for what cannot be asked.
func badRequest(format string, args ...any) error {
	return &client.Error{Status: http.StatusBadRequest, Code: "BAD_REQUEST", Message: fmt.Sprintf(format, args...)}
}

func (a *asked) notServed(lacks string) error {
	return notServed(a.verb, a.path, "tasker.v1 has "+lacks)
}

// knownNames refuses names that would be sent as the unspecified value.
func knownNames(field protoreflect.FieldDescriptor, raw json.RawMessage) error {
	var names []string
	if json.Unmarshal(raw, &names) != nil {
		names = []string{strings.Trim(string(raw), `"`)}
	}
	for _, name := range names {
		if transcode.EnumNumber(field.Enum(), name) == 0 {
			return badRequest("invalid %s %q", field.Name(), name)
		}
	}
	return nil
}

// fitsStruct refuses values that a Struct would change: it holds objects.
func (a *asked) fitsStruct(key string, raw json.RawMessage) error {
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		return a.notServed("only objects for " + key)
	}
	return nil
}

// requests turn what REST calls otherwise into fields.
var requests = map[string]func(*asked) error{
	taskerv1.TaskService_ListTasks_FullMethodName:   pageAsked,
	taskerv1.TaskService_CancelTask_FullMethodName:  cancelAsked,
	taskerv1.StepService_ResolveStep_FullMethodName: actionAsked,
}

// cancelAsked names the actor, for whom there is no field, in the reason.
func cancelAsked(a *asked) (err error) {
	if actor := a.text("actor", ""); actor != "" {
		a.keys["reason"], err = json.Marshal(strings.TrimSpace(a.text("reason", "") + " (by " + actor + ")"))
	}
	return err
}

// The page of a list of tasks when none is asked for.
const defaultPerPage = 25

// pageAsked writes a page or a cursor as a limit and an offset, and the filters of REST as those
// of the request.
func pageAsked(a *asked) error {
	page, err := a.number("page", 1)
	if err != nil {
		return err
	}
	size, err := a.number("per_page", defaultPerPage)
	if err != nil {
		return err
	}
	offset := (page - 1) * size
	a.cursor = a.keys["cursor"] != nil
	if cursor := a.text("cursor", client.NewestTasks); cursor != client.NewestTasks {
		if offset, err = strconv.Atoi(cursor); err != nil {
			return badRequest("invalid cursor %q", cursor)
		}
	}
	period := map[string]string{"start": a.text("created_after", ""), "end": a.text("created_before", "")}
	maps.DeleteFunc(period, func(_, at string) bool { return at == "" })
	for name, value := range map[string]any{"pagination": map[string]int{"limit": size, "offset": offset}, "created_at": period,
		"states": a.texts("status", ","), "tags": a.texts("tag", "")} {
		if a.keys[name], err = json.Marshal(value); err != nil {
			return err
		}
	}
	return nil
}

// texts takes a list out of the keys: of one text, which a separator may divide, or of several.
func (a *asked) texts(name, separator string) (list []string) {
	if json.Unmarshal(a.keys[name], &list) != nil {
		if one := a.text(name, ""); one != "" {
			list = []string{one}
		}
	}
	delete(a.keys, name)
	if separator != "" && len(list) > 0 {
		list = strings.Split(strings.Join(list, separator), separator)
	}
	return list
}

// number takes a number out of the keys.
func (a *asked) number(name string, missing int) (n int, err error) {
	if n = missing; a.keys[name] != nil {
		n, err = strconv.Atoi(strings.Trim(string(a.keys[name]), `"`))
		if err != nil || n < 1 {
			return 0, badRequest("invalid %s %s", name, a.keys[name])
		}
	}
	delete(a.keys, name)
	return n, nil
}

// actionAsked names the operator in the one field for it.
func actionAsked(a *asked) error {
	for _, name := range []string{"reset_by", "resolved_by", "completed_by"} {
		if by, is := a.keys[name]; is {
			a.keys["performed_by"] = by
			delete(a.keys, name)
		}
	}
	if data, is := a.keys["completion_data"]; is {
		delete(a.keys, "completion_data")
		return json.Unmarshal(data, &a.keys)
	}
	return nil
}
