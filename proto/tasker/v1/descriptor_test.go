package taskerv1_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "github.com/tasker-go/tasker/proto/tasker/session/v1"
	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// TestGeneratedCodeFollowsTheFiles: a changed .proto file needs `make proto`.
func TestGeneratedCodeFollowsTheFiles(t *testing.T) {
	names, err := filepath.Glob("*.proto")
	require.NoError(t, err)
	require.Len(t, names, 9)
	for i, name := range names {
		names[i] = "tasker/v1/" + name
	}
	names = append(names, "tasker/session/v1/session.proto")
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{"../.."}})}
	files, err := compiler.Compile(t.Context(), names...)
	require.NoError(t, err)
	for _, file := range files {
		generated, err := protoregistry.GlobalFiles.FindFileByPath(file.Path())
		require.NoError(t, err)
		require.True(t, proto.Equal(description(file), description(generated)), "%s: run make proto", file.Path())
	}
}

func description(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	d := protodesc.ToFileDescriptorProto(f)
	d.SourceCodeInfo = nil
	return d
}

// The tables of the interface: a file's heading, and the rows of its messages and enums.
var (
	heading = regexp.MustCompile(`^\*\*tasker/v1/(\w+)\.proto\*\*`)
	enumRow = regexp.MustCompile("^enum ([\\w.]+) \\(prefix `(\\w+)`\\)$")
	sameRow = regexp.MustCompile(`fields 1–\d as (\w+)`)
)

// kinds of the tables' short names; what has none is a message or an enum.
var kinds = map[string]string{"": "string", "i32": "int32", "i64": "int64", "u32": "uint32", "u64": "uint64", "f64": "double", "bool": "bool",
	"TS": "google.protobuf.Timestamp", "Struct": "google.protobuf.Struct"}

// TestEveryNameNumberAndTypeIsThatOfTasker compares the descriptors with the tables of the
// interface, where they are at hand.
func TestEveryNameNumberAndTypeIsThatOfTasker(t *testing.T) {
	text, err := os.ReadFile("../../../../shared/spec/wire-facts.md")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tables of the interface are not beside the project")
	}
	require.NoError(t, err)
	want := tables(t, string(text))
	have := map[string]string{}
	protoregistry.GlobalFiles.RangeFilesByPackage("tasker.v1", func(f protoreflect.FileDescriptor) bool {
		describe(have, f)
		return true
	})
	require.Len(t, want, 118+10)
	for _, name := range beyond {
		require.Contains(t, have, name)
		delete(have, name)
	}
	require.Equal(t, want, have)
}

// beyond are the messages that Tasker does not have.
var beyond = []string{"GetTaskLogsRequest", "GetTaskLogsResponse", "LogLine"}

// tables maps each message and enum to its fields, one a line.
func tables(t *testing.T, text string) map[string]string {
	t.Helper()
	rows := map[string]string{}
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		if heading.MatchString(line) {
			inside = true
		}
		if strings.HasPrefix(line, "# ") {
			inside = false
		}
		cells := strings.Split(line, " | ")
		if !inside || len(cells) != 2 || strings.HasPrefix(line, "| message") {
			continue
		}
		rows[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(cells[1], " |")
	}
	fields := map[string]string{}
	for name, row := range rows {
		if m := enumRow.FindStringSubmatch(name); m != nil {
			fields[m[1]] = m[2] + strings.ReplaceAll(row, ", ", "\n"+m[2])
			continue
		}
		if strings.HasPrefix(row, "the same nine fields") {
			row = rows["PoolDetail"]
		}
		row = sameRow.ReplaceAllStringFunc(row, func(s string) string { return rows[sameRow.FindStringSubmatch(s)[1]] })
		fields[name] = messageRow(row)
	}
	return fields
}

// messageRow turns "a=1; b=2:?i32" into lines as describe writes them.
func messageRow(row string) string {
	if row == "(empty)" {
		return ""
	}
	row, integers := strings.CutSuffix(row, " — all i64")
	var lines []string
	for field := range strings.SplitSeq(row, "; ") {
		name, kind, _ := strings.Cut(field, ":")
		label := ""
		if rest, ok := strings.CutPrefix(kind, "?"); ok {
			label, kind = "optional ", rest
		}
		if rest, ok := strings.CutPrefix(kind, "[]"); ok {
			label, kind = "repeated ", rest
		}
		if integers {
			kind = "i64"
		}
		if full, ok := kinds[kind]; ok {
			kind = full
		}
		lines = append(lines, name+" "+label+strings.ReplaceAll(kind, ",", ", "))
	}
	return strings.Join(lines, "\n")
}

// describe writes the messages and enums of a file in the form of messageRow.
func describe(into map[string]string, f protoreflect.FileDescriptor) {
	for i := range f.Enums().Len() {
		describeEnum(into, f.Enums().Get(i))
	}
	for i := range f.Messages().Len() {
		m := f.Messages().Get(i)
		var lines []string
		for j := range m.Fields().Len() {
			lines = append(lines, describeField(m.Fields().Get(j)))
		}
		into[local(m)] = strings.Join(lines, "\n")
		for j := range m.Enums().Len() {
			describeEnum(into, m.Enums().Get(j))
		}
	}
}

func describeEnum(into map[string]string, e protoreflect.EnumDescriptor) {
	var lines []string
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		lines = append(lines, string(v.Name())+"="+strconv.Itoa(int(v.Number())))
	}
	into[local(e)] = strings.Join(lines, "\n")
}

func describeField(f protoreflect.FieldDescriptor) string {
	label := ""
	switch {
	case f.IsList():
		label = "repeated "
	case f.HasOptionalKeyword():
		label = "optional "
	}
	return string(f.Name()) + "=" + strconv.Itoa(int(f.Number())) + " " + label + kindOf(f)
}

func kindOf(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map<" + kindOf(f.MapKey()) + ", " + kindOf(f.MapValue()) + ">"
	case f.Message() != nil:
		return local(f.Message())
	case f.Enum() != nil:
		return string(f.Enum().Name())
	default:
		return f.Kind().String()
	}
}

// local is the name of a declaration within its package.
func local(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "tasker.v1.")
}

// TestServices: ten with the 33 methods of Tasker, of which one streams, and one of our own.
func TestServices(t *testing.T) {
	services, methods, streams := 0, 0, 0
	for _, f := range []protoreflect.FileDescriptor{taskerv1.File_tasker_v1_tasks_proto, taskerv1.File_tasker_v1_steps_proto, taskerv1.File_tasker_v1_templates_proto,
		taskerv1.File_tasker_v1_health_proto, taskerv1.File_tasker_v1_config_proto, taskerv1.File_tasker_v1_analytics_proto, taskerv1.File_tasker_v1_dlq_proto, taskerv1.File_tasker_v1_worker_proto} {
		for i := range f.Services().Len() {
			services++
			for j := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(j)
				methods++
				if m.IsStreamingServer() {
					streams++
					require.Equal(t, "StreamTaskStatus", string(m.Name()))
				}
				require.False(t, m.IsStreamingClient())
			}
		}
	}
	require.Equal(t, []int{10, 33 + 1, 1}, []int{services, methods, streams})
}
