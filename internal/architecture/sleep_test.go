package architecture_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNothingSleepsInTests: a test that sleeps is slow on success and fails on a busy
// machine. That also holds for sleeping by another name: timers, Never (which always
// takes its whole time and proves nothing on a slow machine), a condition of Eventually
// that only compares times, pg_sleep. Time as a deadline is allowed: a select with
// another case, whose time.After case fails the test. So is a bubble of testing/synctest,
// where time costs nothing. A test that must take time gives the reason in a comment
// "takes time: …" on its line or the one above.
func TestNothingSleepsInTests(t *testing.T) {
	t.Parallel()
	report(t, sleeps(t, load(t)))
}

// sleeps looks into tests and test kits.
func sleeps(t *testing.T, pkgs []pkg) (wrong []string) {
	t.Helper()
	for _, p := range pkgs {
		files := slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		if p.testKit() {
			files = slices.Concat(files, p.GoFiles)
		}
		for _, name := range files {
			for _, at := range sleepsIn(t, filepath.Join(p.Dir, name)) {
				wrong = append(wrong, at+" waits for time to pass; wait for a state (pgtest.Eventually), an event or a fake clock")
			}
		}
	}
	return wrong
}

var (
	reasonToTakeTime = regexp.MustCompile(`^//\s*(?:.*\s)?takes time: \S`)
	sleepsInDatabase = regexp.MustCompile(`(?i)\bpg_sleep\w*\s*\(`)
	passingTime      = []string{"Sleep", "After", "NewTimer", "NewTicker", "Tick", "AfterFunc"}
	lookingAtClocks  = []string{"Since", "Until", "Now"}
)

func sleepsIn(t *testing.T, file string) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution|parser.ParseComments)
	require.NoError(t, err)
	for _, imp := range f.Imports {
		if imp.Path.Value == `"testing/synctest"` {
			return nil
		}
	}
	excused := map[int]bool{}
	for _, group := range f.Comments {
		for _, c := range group.List {
			if reasonToTakeTime.MatchString(c.Text) {
				excused[fset.Position(c.Pos()).Line] = true
				excused[fset.Position(group.End()).Line+1] = true
			}
		}
	}
	deadlines := map[ast.Node]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectStmt); ok {
			noteDeadlines(s, deadlines)
		}
		if waitsForTime(n, deadlines) && !excused[fset.Position(n.Pos()).Line] {
			found = append(found, fset.Position(n.Pos()).String())
		}
		return true
	})
	return found
}

// noteDeadlines marks the calls of time.After in cases that fail the test, if the select
// has another case.
func noteDeadlines(s *ast.SelectStmt, deadlines map[ast.Node]bool) {
	for _, clause := range s.Body.List {
		c, ok := clause.(*ast.CommClause)
		if !ok || c.Comm == nil || len(s.Body.List) < 2 || !fails(c.Body) {
			continue
		}
		ast.Inspect(c.Comm, func(n ast.Node) bool {
			if of, name := calls(n); of == "time" && name == "After" {
				deadlines[n] = true
			}
			return true
		})
	}
}

func fails(body []ast.Stmt) (yes bool) {
	for _, s := range body {
		ast.Inspect(s, func(n ast.Node) bool {
			_, name := calls(n)
			yes = yes || strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Fail") || strings.HasPrefix(name, "Error")
			return !yes
		})
	}
	return yes
}

// waitsForTime reports whether a node is a call, or a text, that makes time pass.
func waitsForTime(n ast.Node, deadlines map[ast.Node]bool) bool {
	if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		text, err := strconv.Unquote(lit.Value)
		return err == nil && sleepsInDatabase.MatchString(text)
	}
	of, name := calls(n)
	switch {
	case of == "time":
		return slices.Contains(passingTime, name) && !deadlines[n]
	case of == "exec":
		return runsSleep(n)
	case strings.HasPrefix(name, "Never") || strings.HasPrefix(name, "Consistently"):
		return of != ""
	case strings.HasPrefix(name, "Eventually"):
		return looksAtAClock(n)
	}
	return false
}

// calls returns the package or variable and the name of a called function, "" if the node
// is not such a call.
func calls(n ast.Node) (of, name string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	if id, ok := sel.X.(*ast.Ident); ok {
		return id.Name, sel.Sel.Name
	}
	return "", sel.Sel.Name
}

func runsSleep(n ast.Node) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		yes = yes || ok && strings.Trim(lit.Value, "`\"") == "sleep"
		return !yes
	})
	return yes
}

// looksAtAClock reports whether a condition within a call compares times.
func looksAtAClock(n ast.Node) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		condition, ok := n.(*ast.FuncLit)
		if !ok {
			return true
		}
		ast.Inspect(condition, func(n ast.Node) bool {
			of, name := calls(n)
			yes = yes || of == "time" && slices.Contains(lookingAtClocks, name)
			return !yes
		})
		return false
	})
	return yes
}
