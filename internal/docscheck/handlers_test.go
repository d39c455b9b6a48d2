package docscheck_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
	"github.com/tasker-go/tasker/worker/decision"
	"github.com/tasker-go/tasker/worker/events"
	"github.com/tasker-go/tasker/workflow"
)

// handlerRow says how the three languages name one thing of handlers. A cell has names with commas between them,
// and perhaps a semicolon and a note; or a dash and the reason why there is no name.
type handlerRow struct {
	key                    string // of a step in a template; empty in rows of names
	golang, python, script string
}

// handlerSection is a table of the page.
type handlerSection struct {
	title, intro string
	rows         []handlerRow
}

// vocabulary is what a language, or a template, has for handlers.
type vocabulary struct {
	what      string
	exists    map[string]bool
	demanded  map[string]bool   // what the table must have
	elsewhere map[string]string // what it has not, although it is demanded, by the reason
}

// noName begins a cell with a reason.
const noName = "– "

// TestHandlerReferenceIsUpToDate: docs/reference/handlers.md has what handlers have in each language, without a hole
// that has no reason.
func TestHandlerReferenceIsUpToDate(t *testing.T) {
	t.Parallel()
	var rows []handlerRow
	for _, s := range handlerSections {
		rows = append(rows, s.rows...)
	}
	words := []vocabulary{keyWords(), goWords(t), pythonWords(t), scriptWords(t)}
	for _, v := range words {
		require.Greater(t, len(v.demanded), 40, v.what)
	}
	require.Empty(t, handlerProblems(rows, words))
	compare(t, "docs/reference/handlers.md", handlersPage())
	for _, from := range []string{"docs/README.md", "docs/use/handlers.md", "sdk/python/README.md", "sdk/typescript/README.md"} {
		require.Contains(t, linksOf(page(t, from)), linkTo(from), "%s does not lead to the page", from)
		require.Empty(t, whyBroken(from, linkTo(from)))
	}
}

// linkTo is the link from a page to docs/reference/handlers.md.
func linkTo(from string) string {
	to, err := filepath.Rel(path.Dir(from), "docs/reference/handlers.md")
	if err != nil {
		return err.Error()
	}
	return filepath.ToSlash(to)
}

func handlersPage() string {
	var b strings.Builder
	b.WriteString("# What handlers have in each language\n\n" +
		"<!-- Generated from internal/docscheck/handlers_rows_test.go by\n" +
		"     go test ./internal/docscheck -update. Do not edit. -->\n\n" +
		"Each row is one thing in Go, Python and TypeScript. A dash begins the reason why a language has no name for it.\n" +
		"The tests of the repository compare the tables with the sources of all three languages.\n\n" +
		"`ctx` is the context of a step. [Writing workers](../use/handlers.md) explains the names in Go,\n" +
		"[Python](../../sdk/python/README.md) and [TypeScript](../../sdk/typescript/README.md) theirs.\n")
	for _, s := range handlerSections {
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		if s.intro != "" {
			b.WriteString(s.intro + "\n\n")
		}
		if s.rows[0].key == "" {
			b.WriteString("| Go | Python | TypeScript |\n|---|---|---|\n")
		} else {
			b.WriteString("| key | Go | Python | TypeScript |\n|---|---|---|---|\n")
		}
		for _, r := range s.rows {
			if r.key != "" {
				b.WriteString("| `" + r.key + "` ")
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", shown(r.golang), shown(r.python), shown(r.script))
		}
	}
	b.WriteString("\n## Names that are not of handlers\n")
	for _, l := range []struct {
		language string
		names    map[string]string
	}{{"Go", goElsewhere}, {"Python", pythonElsewhere}, {"TypeScript", scriptElsewhere}} {
		fmt.Fprintf(&b, "\n**%s**\n\n", l.language)
		byReason := map[string][]string{}
		for _, name := range slices.Sorted(maps.Keys(l.names)) {
			byReason[l.names[name]] = append(byReason[l.names[name]], "`"+name+"`")
		}
		for _, reason := range slices.Sorted(maps.Keys(byReason)) {
			fmt.Fprintf(&b, "- %s: %s\n", reason, strings.Join(byReason[reason], ", "))
		}
	}
	return b.String()
}

// shown is a cell as Markdown.
func shown(text string) string {
	names, note := parted(text)
	for i, name := range names {
		if base, key, is := strings.Cut(strings.TrimSuffix(name, "]"), "["); is {
			name = base + `["` + key + `"]`
		} else if base, parameter, is := strings.Cut(strings.TrimSuffix(name, ")"), "("); is {
			name = base + "(" + parameter + "=…)"
		}
		names[i] = "`" + name + "`"
	}
	switch {
	case len(names) == 0:
		return cell(noName + note)
	case note == "":
		return cell(strings.Join(names, ", "))
	}
	return cell(strings.Join(names, ", ") + ": " + note)
}

// parted parts a cell into its names, and the note behind them or the reason why there are none.
func parted(text string) (names []string, note string) {
	if reason, none := strings.CutPrefix(text, noName); none {
		return nil, reason
	}
	list, note, _ := strings.Cut(text, "; ")
	if list == "" {
		return nil, note
	}
	return strings.Split(list, ", "), note
}

// handlerProblems lists what is wrong with rows, whose cells are of the vocabularies in their order.
func handlerProblems(rows []handlerRow, words []vocabulary) (problems []string) {
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	mentioned := make([]map[string]bool, len(words))
	for i := range words {
		mentioned[i] = map[string]bool{}
	}
	for _, r := range rows {
		if r.key == "" && isNowhere(r) {
			report("the row of %q names nothing", r.golang)
		}
		for i, text := range []string{r.key, r.golang, r.python, r.script} {
			if i == 0 && text == "" {
				continue
			}
			names, note := parted(text)
			if len(names) == 0 && note == "" {
				report("the row of %q has neither a name nor a reason: %s", r.key+" "+r.golang+" "+r.python, words[i].what)
			}
			for _, name := range names {
				if mentioned[i][name] = true; !words[i].exists[name] {
					report("%s: %s does not exist", words[i].what, name)
				}
			}
		}
	}
	for i, v := range words {
		for _, name := range slices.Sorted(maps.Keys(v.demanded)) {
			if !mentioned[i][name] && v.elsewhere[name] == "" && !covered(name, mentioned[i]) {
				report("%s: %s has no row", v.what, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v.elsewhere)) {
			if !v.exists[name] || mentioned[i][name] {
				report("%s: %s needs no exception", v.what, name)
			}
		}
	}
	return problems
}

// isNowhere reports whether a row has reasons only.
func isNowhere(r handlerRow) bool {
	for _, text := range []string{r.golang, r.python, r.script} {
		if names, _ := parted(text); len(names) > 0 {
			return false
		}
	}
	return true
}

// covered reports whether a row is for a key and all keys below it.
func covered(name string, mentioned map[string]bool) bool {
	for i, c := range name {
		if c == '.' && mentioned[name[:i]+".*"] {
			return true
		}
	}
	return false
}

// keyWords are the keys of a step in a template.
func keyWords() vocabulary {
	v := vocabulary{what: "template", exists: map[string]bool{}, demanded: map[string]bool{}}
	v.add(reflect.TypeFor[workflow.StepTemplate](), "")
	return v
}

// add adds the keys of a type; those with keys below them are demanded by these.
func (v vocabulary) add(of reflect.Type, before string) {
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		key, below := before+name, f.Type
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice && below.Elem().Kind() == reflect.Struct {
			below = below.Elem()
		}
		if below.Kind() == reflect.Struct {
			v.exists[key+".*"] = true
			v.add(below, key+".")
			continue
		}
		v.exists[key], v.demanded[key] = true, true
	}
}

// goWords are the exported names of package worker and of those for results and events in it: declarations,
// methods, and fields of what handlers read or make.
func goWords(t *testing.T) vocabulary {
	t.Helper()
	v := vocabulary{what: "Go", exists: map[string]bool{}, demanded: map[string]bool{}, elsewhere: goElsewhere}
	add := func(name string) { v.exists[name], v.demanded[name] = true, true }
	for _, folder := range []string{"worker", "worker/batch", "worker/decision", "worker/events"} {
		for _, name := range exportedNames(t, folder) {
			add(path.Base(folder) + "." + name)
		}
	}
	for before, of := range map[string]reflect.Type{
		"ctx.": reflect.TypeFor[*worker.StepContext](), "Worker.": reflect.TypeFor[*worker.Worker](),
		"batch.Outcome.": reflect.TypeFor[batch.Outcome](), "decision.Outcome.": reflect.TypeFor[decision.Outcome](),
		"worker.Resolver.":          reflect.TypeFor[worker.Resolver](),
		"worker.NamespaceResolver.": reflect.TypeFor[worker.NamespaceResolver](),
		"worker.ForeignResolver.":   reflect.TypeFor[worker.ForeignResolver](),
		"worker.Handler.":           reflect.TypeFor[worker.Handler](),
		"worker.StepEvent.":         reflect.TypeFor[*worker.StepEvent](),
	} {
		for i := range of.NumMethod() {
			name := of.Method(i).Name
			_, ofResolver := reflect.TypeFor[worker.Resolver]().MethodByName(name)
			inherited := ofResolver && of.Implements(reflect.TypeFor[worker.Resolver]()) && before != "worker.Resolver."
			if !strings.HasSuffix(name, "JSON") && !inherited {
				add(before + name)
			}
		}
	}
	for before, of := range map[string]reflect.Type{
		"worker.Batch.": reflect.TypeFor[worker.Batch](), "worker.BatchResult.": reflect.TypeFor[worker.BatchResult](),
		"worker.Bytes.": reflect.TypeFor[worker.Bytes](), "worker.NextTask.": reflect.TypeFor[worker.NextTask](),
		"worker.Publisher.": reflect.TypeFor[worker.Publisher](), "worker.StepEvent.": reflect.TypeFor[worker.StepEvent](),
		"batch.Cursor.": reflect.TypeFor[batch.Cursor](), "batch.Result.": reflect.TypeFor[batch.Result[any]](),
		"events.Event.": reflect.TypeFor[events.Event](), "events.Metadata.": reflect.TypeFor[events.Metadata](),
		"events.Subscriber.": reflect.TypeFor[events.Subscriber](),
	} {
		for _, f := range reflect.VisibleFields(of) {
			if f.IsExported() {
				add(before + f.Name)
			}
		}
	}
	return v
}

// exportedNames lists what a package declares: functions, types, variables and constants.
func exportedNames(t *testing.T, folder string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
	require.NoError(t, err)
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if fn, is := d.(*ast.FuncDecl); is && fn.Recv == nil {
				add(fn.Name)
			}
			general, is := d.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, spec := range general.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id)
					}
				}
			}
		}
	}
	return names
}

// sourceText joins the files of a folder, those of folders in it left out.
func sourceText(t *testing.T, folder, extension string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*"+extension))
	require.NoError(t, err)
	var b strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name) // #nosec G304 -- of the repository
		require.NoError(t, err)
		b.Write(append(text, '\n'))
	}
	return b.String()
}

// spelled is the name of a member as the table has it: ctx stands for the class of contexts.
func spelled(class, member string) string {
	return strings.Replace(class, "StepContext", "ctx", 1) + "." + member
}

var (
	pythonBlock  = regexp.MustCompile(`(?m)^(?:class|def|async def) (\w+)((?:.*\n)(?:(?:[ )].*)?\n)*)`)
	pythonMember = regexp.MustCompile(`(?m)^ {4}(?:(?:async )?def )?([a-z]\w*)(?:\(|:| =)|` +
		`^ {8}self\.([a-z]\w*)(?:: [^=\n]+)? = `)
	pythonCall = regexp.MustCompile(`(?ms)^ {4}def (\w+)\((.*?)\) ->`)
	parameter  = regexp.MustCompile(`(\w+)(?::|=|,|$)`)
	quotedName = regexp.MustCompile(`"(\w+)"`)
	word       = regexp.MustCompile(`[a-z]\w*`)
)

// pythonClasses are those whose members are demanded.
var pythonClasses = []string{"StepContext", "Handlers", "Batch", "BatchValue", "Checkpoint", "BatchConfig", "Cursor",
	"Decision", "StepEvent", "Event", "Publisher", "Subscriber", "Resolver", "Hooks", "Bytes", "TaskerError",
	"Cancelled", "Continue", "Yield"}

// pythonWords are the names that the package for Python exports, the members of its classes, their parameters
// as Class(parameter) or Class.method(parameter), and members of mappings as Class.member[key].
func pythonWords(t *testing.T) vocabulary {
	t.Helper()
	_, list, found := strings.Cut(page(t, "sdk/python/src/tasker/__init__.py"), "__all__ = [")
	require.True(t, found)
	v := vocabularyOfPython(sourceText(t, "sdk/python/src/tasker", ".py"), list, pythonClasses)
	v.elsewhere = pythonElsewhere
	return v
}

func vocabularyOfPython(source, exported string, classes []string) vocabulary {
	v := vocabulary{what: "Python", exists: map[string]bool{}, demanded: map[string]bool{}}
	for _, m := range quotedName.FindAllStringSubmatch(exported, -1) {
		v.exists[m[1]], v.demanded[m[1]] = true, true
	}
	for _, block := range pythonBlock.FindAllStringSubmatch(source, -1) {
		class, body := block[1], block[2]
		var members []string
		for _, m := range pythonMember.FindAllStringSubmatch(body, -1) {
			member := m[1] + m[2]
			v.exists[spelled(class, member)] = true
			members = append(members, spelled(class, member))
			if slices.Contains(classes, class) {
				v.demanded[spelled(class, member)] = true
			}
		}
		for _, m := range pythonCall.FindAllStringSubmatch(body, -1) {
			called := spelled(class, m[1])
			if m[1] == "__init__" {
				called = class
			}
			for _, p := range parameter.FindAllStringSubmatch(m[2], -1) {
				v.exists[called+"("+p[1]+")"] = true
			}
		}
		for _, key := range word.FindAllString(body, -1) {
			for _, member := range members {
				v.exists[member+"["+key+"]"] = true
			}
		}
	}
	return v
}

var (
	scriptBlock  = regexp.MustCompile(`(?m)^export (?:abstract )?(class|interface) (\w+)(.*\{\n(?:(?:[ )].*)?\n)*?)\}`)
	scriptMember = regexp.MustCompile(`^ {2}((?:(?:readonly|static|async|get|override|protected|private) )*)` +
		`([a-z]\w*)\??[<(:=]`)
	scriptInner  = regexp.MustCompile(`^ {4}(readonly )?([a-z]\w*)\??(?::| =)`)
	scriptShort  = regexp.MustCompile(`^ {2}constructor\(readonly ([a-z]\w*)`)
	scriptExport = regexp.MustCompile(`(?s)export (?:type )?\{(.*?)\}`)
)

// scriptClasses are those whose members are demanded.
var scriptClasses = []string{"StepContext", "Handlers", "Batch", "BatchValue", "BatchEnd", "Checkpoint", "BatchConfig",
	"BatchCursor", "Decision", "StepEvent", "DomainEvent", "Publisher", "Subscriber", "Resolver", "HandlerReference",
	"Hooks", "Bytes", "Marks", "NextTask", "Cancelled", "Continue", "Needs"}

// scriptWords are the names that the package for TypeScript exports, and the members of its classes and interfaces.
func scriptWords(t *testing.T) vocabulary {
	t.Helper()
	source := sourceText(t, "sdk/typescript/src", ".ts")
	v := vocabularyOfScript(source, page(t, "sdk/typescript/src/index.ts"), scriptClasses)
	v.elsewhere = scriptElsewhere
	return v
}

func vocabularyOfScript(source, exported string, classes []string) vocabulary {
	v := vocabulary{what: "TypeScript", exists: map[string]bool{}, demanded: map[string]bool{}}
	for _, m := range scriptExport.FindAllStringSubmatch(exported, -1) {
		for name := range strings.SplitSeq(m[1], ",") {
			if name = strings.TrimPrefix(strings.TrimSpace(name), "type "); name != "" {
				v.exists[name], v.demanded[name] = true, true
			}
		}
	}
	for _, block := range scriptBlock.FindAllStringSubmatch(source, -1) {
		class, outer := block[2], ""
		for line := range strings.Lines(block[3]) {
			member := ""
			if m := scriptShort.FindStringSubmatch(line); m != nil {
				outer, member = "constructor", m[1]
			} else if m := scriptMember.FindStringSubmatch(line); m != nil {
				if outer = m[2]; !strings.Contains(m[1], "private") && !strings.Contains(m[1], "protected") {
					member = m[2]
				}
			} else if m := scriptInner.FindStringSubmatch(line); m != nil && outer == "constructor" && m[1] != "" {
				member = m[2]
			} else if m != nil && block[1] == "interface" {
				member = outer + "." + m[2]
			}
			if member == "" || member == "constructor" {
				continue
			}
			v.exists[spelled(class, member)] = true
			v.demanded[spelled(class, member)] = v.demanded[spelled(class, member)] || slices.Contains(classes, class)
		}
	}
	maps.DeleteFunc(v.demanded, func(_ string, is bool) bool { return !is })
	return v
}

func TestPlantedHandlerRowsAreFound(t *testing.T) {
	t.Parallel()
	some := func(what string, names ...string) vocabulary {
		v := vocabulary{what: what, exists: map[string]bool{}, demanded: map[string]bool{}}
		for _, name := range names {
			v.exists[name], v.demanded[name] = true, true
		}
		return v
	}
	words := func() []vocabulary {
		return []vocabulary{some("template", "wait.for", "name"), some("Go", "ctx.A", "worker.B"),
			some("Python", "ctx.a", "B"), some("TypeScript", "ctx.a")}
	}
	good := []handlerRow{
		{"", "ctx.A", "ctx.a; a note", "ctx.a"}, {"", "worker.B", "B", "– it has none."},
		{"name", "– x.", "– x.", "– x."}, {"wait.*", "– x.", "– x.", "– x."},
	}
	fine := words()
	fine[0].exists["wait.*"] = true
	require.Empty(t, handlerProblems(good, fine))
	for planted, tt := range map[string]struct {
		change func(rows []handlerRow, words []vocabulary) []handlerRow
		want   string
	}{
		"a method in Go without a row": {func(rows []handlerRow, w []vocabulary) []handlerRow {
			w[1].demanded["ctx.New"] = true
			return rows
		}, "Go: ctx.New has no row"},
		"a key without a row": {func(rows []handlerRow, w []vocabulary) []handlerRow {
			w[0].demanded["retry.new"] = true
			return rows
		}, "template: retry.new has no row"},
		"a name in Python without a row": {func(rows []handlerRow, w []vocabulary) []handlerRow {
			w[2].demanded["ctx.more"] = true
			return rows
		}, "Python: ctx.more has no row"},
		"a name in TypeScript without a row": {func(rows []handlerRow, w []vocabulary) []handlerRow {
			w[3].demanded["ctx.more"] = true
			return rows
		}, "TypeScript: ctx.more has no row"},
		"a name that Go does not have": {func(rows []handlerRow, _ []vocabulary) []handlerRow {
			return append(rows, handlerRow{"", "ctx.Gone", "ctx.a", "ctx.a"})
		}, "Go: ctx.Gone does not exist"},
		"a name that Python does not have": {func(rows []handlerRow, _ []vocabulary) []handlerRow {
			rows[0].python = "ctx.a, ctx.gone"
			return rows
		}, "Python: ctx.gone does not exist"},
		"a name that TypeScript does not have": {func(rows []handlerRow, _ []vocabulary) []handlerRow {
			rows[0].script = "ctx.a, ctx.gone; a note"
			return rows
		}, "TypeScript: ctx.gone does not exist"},
		"a key that templates do not have": {func(rows []handlerRow, _ []vocabulary) []handlerRow {
			return append(rows, handlerRow{"gone", "– x.", "– x.", "– x."})
		}, "template: gone does not exist"},
		"neither a name nor a reason": {func(rows []handlerRow, _ []vocabulary) []handlerRow {
			rows[1].script = ""
			return rows
		}, `the row of " worker.B B" has neither a name nor a reason: TypeScript`},
		"a dash without a reason": {func(rows []handlerRow, _ []vocabulary) []handlerRow {
			rows[1].script = noName
			return rows
		}, `the row of " worker.B B" has neither a name nor a reason: TypeScript`},
		"a row of reasons": {func(rows []handlerRow, _ []vocabulary) []handlerRow {
			return append(rows, handlerRow{"", "– x.", "– x.", "– x."})
		}, `the row of "– x." names nothing`},
		"an exception for what is gone": {func(rows []handlerRow, w []vocabulary) []handlerRow {
			w[1].elsewhere = map[string]string{"worker.Gone": "x"}
			return rows
		}, "Go: worker.Gone needs no exception"},
		"an exception for what has a row": {func(rows []handlerRow, w []vocabulary) []handlerRow {
			w[1].elsewhere = map[string]string{"ctx.A": "x"}
			return rows
		}, "Go: ctx.A needs no exception"},
	} {
		w := words()
		w[0].exists["wait.*"] = true
		require.Equal(t, []string{tt.want}, handlerProblems(tt.change(slices.Clone(good), w), w), planted)
	}
}

// TestMembersAreRead: what the table must know is read from the sources of each language.
func TestMembersAreRead(t *testing.T) {
	t.Parallel()
	python := vocabularyOfPython(`class StepContext:
    """Text: of a class."""

    step: str
    def __init__(self, message: str, *, code: str = "") -> None:
        self._hidden = 1
        self.fence = str(message["fence"])
        self.config: Mapping[str, JSON] = {}

    @property
    def left(self) -> float:
        local = 1
        return local

    async def ask(
        self, what: str, more: int = 0
    ) -> Any:
        return what

def after(x):
    inside = 1
`, `"Worker", "after"]`, []string{"StepContext"})
	require.Equal(t, []string{"Worker", "after", "ctx.ask", "ctx.config", "ctx.fence", "ctx.left", "ctx.step"},
		slices.Sorted(maps.Keys(python.demanded)))
	for _, name := range []string{"StepContext(code)", "ctx.config[fence]"} {
		require.True(t, python.exists[name], name)
	}
	script := vocabularyOfScript(`export class StepContext<T = number> {
  readonly fence: string;
  readonly isolated: Json[] = [];
  private point: Point | undefined;

  constructor(
    private readonly session: Session,
    readonly shown: number,
    readonly kind = "text",
  ) {
    this.fence = "";
  }

  get token(): bigint {
    return 0n;
  }

  static async of<T>(
    step: string,
  ): Promise<T> {
    const local: number = 1;
  }

  protected hidden(): void {}
}
export class Ended extends Error {
  constructor(readonly reason: string) {
    super(reason);
  }
}
export interface Event {
  name?: string;
  metadata: {
    uuid: string;
  };
  run?(): void;
}
`, `export { Worker, type Json } from "./x.js"; export type { Hooks } from "./y.js";`,
		[]string{"StepContext", "Ended", "Event"})
	require.Equal(t, []string{"Ended.reason", "Event.metadata", "Event.metadata.uuid", "Event.name", "Event.run", "Hooks",
		"Json", "Worker", "ctx.fence", "ctx.isolated", "ctx.kind", "ctx.of", "ctx.shown", "ctx.token"},
		slices.Sorted(maps.Keys(script.demanded)))
	keys := keyWords()
	for _, key := range []string{"name", "handler.callable", "retry.backoff", "publishes_events.name", "wait.for"} {
		require.True(t, keys.demanded[key], key)
	}
}
