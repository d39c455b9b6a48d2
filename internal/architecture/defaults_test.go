package architecture_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDefaultsExistOnce checks the code: a field that is set from a key somewhere has its
// default in config. So no code sets it to a constant, and no comment names the number.
func TestDefaultsExistOnce(t *testing.T) {
	t.Parallel()
	report(t, secondDefaults(typed(t)))
}

// secondDefaults finds, for fields that are set from a key: a constant assigned under a
// condition on the field, a constant passed together with it (as to cmp.Or, but not to
// min or max, which bound), and numbers in comments.
func secondDefaults(house []source) (wrong []string) {
	keyed := setFromKeys(house)
	outsideConfig(house, func(s source, n ast.Node) {
		for _, m := range s.defaulted(n) {
			if keyed[m] {
				wrong = append(wrong, fmt.Sprintf("%s gives %s a default of its own: it is set from a key, whose default is in config", roomOf(s.path), m))
			}
		}
		for _, m := range s.numbered(n) {
			if keyed[m] {
				wrong = append(wrong, fmt.Sprintf("%s says the default of %s in a comment: name its key instead", roomOf(s.path), m))
			}
		}
	})
	return wrong
}

// outsideConfig visits the code of all packages but config.
func outsideConfig(house []source, visit func(source, ast.Node)) {
	for _, s := range house {
		if s.path == configPath {
			continue
		}
		for _, f := range s.files {
			ast.Inspect(f, func(n ast.Node) bool {
				visit(s, n)
				return true
			})
		}
	}
}

// setFromKeys are the fields outside of config that get the value of a key, also through
// another field.
func setFromKeys(house []source) map[member]bool {
	keyed, from := map[member]bool{}, map[member][]member{}
	outsideConfig(house, func(s source, n ast.Node) {
		for m, value := range s.assigned(n) {
			if s.readsKey(value) {
				keyed[m] = true
			} else if of, ok := s.field(value); ok {
				from[of] = append(from[of], m)
			}
		}
	})
	for again := true; again; {
		again = false
		for of, list := range from {
			for _, m := range list {
				if keyed[of] && !keyed[m] {
					keyed[m], again = true, true
				}
			}
		}
	}
	return keyed
}

// assigned returns the values that a literal or an assignment sets fields to.
func (s source) assigned(n ast.Node) map[member]ast.Expr {
	values := map[member]ast.Expr{}
	switch n := n.(type) {
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			name, ok := kv.Key.(*ast.Ident)
			if named := namedOf(s.info.TypeOf(n)); ok && named != nil {
				values[member{qualified(named), name.Name}] = kv.Value
			}
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if m, ok := s.field(left); ok && len(n.Lhs) == len(n.Rhs) {
				values[m] = n.Rhs[i]
			}
		}
	}
	return values
}

// defaulted are the fields that a conditional assignment or a call gives a
// constant.
func (s source) defaulted(n ast.Node) (list []member) {
	switch n := n.(type) {
	case *ast.IfStmt:
		asked := s.fieldsIn(n.Cond)
		for _, stmt := range n.Body.List {
			for m, value := range s.assigned(stmt) {
				if asked[m] && s.constant(value) {
					list = append(list, m)
				}
			}
		}
	case *ast.CallExpr:
		name := callee(n)
		for _, arg := range n.Args {
			m, ok := s.field(arg)
			_, address := ast.Unparen(arg).(*ast.UnaryExpr)
			for _, other := range n.Args {
				if !ok || name == "min" || name == "max" || !s.constant(other) || !types.Identical(s.value(arg), types.Default(s.info.TypeOf(other))) {
					continue
				}
				// A text beside another is more often a label than a default.
				if basic, isBasic := s.value(arg).Underlying().(*types.Basic); address || name == "Or" || isBasic && basic.Info()&types.IsNumeric != 0 {
					list = append(list, m)
				}
			}
		}
	}
	return list
}

// callee is the name of the called function.
func callee(n *ast.CallExpr) string {
	switch fn := n.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		return fn.Sel.Name
	}
	return ""
}

// fieldsIn are the fields that an expression selects.
func (s source) fieldsIn(e ast.Expr) map[member]bool {
	fields := map[member]bool{}
	ast.Inspect(e, func(n ast.Node) bool {
		if x, ok := n.(ast.Expr); ok {
			if m, ok := s.field(x); ok {
				fields[m] = true
			}
		}
		return true
	})
	return fields
}

var number = regexp.MustCompile(`(?i)\bdefaults? [0-9]`)

// numbered are the fields of a struct whose comments say a default.
func (s source) numbered(n ast.Node) (list []member) {
	spec, ok := n.(*ast.TypeSpec)
	if !ok {
		return nil
	}
	structure, ok := spec.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	for _, f := range structure.Fields.List {
		if text := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " "); !number.MatchString(text) {
			continue
		}
		for _, name := range f.Names {
			list = append(list, member{s.path + "." + spec.Name.Name, name.Name})
		}
	}
	return list
}

// field is the field that an expression selects: x.F, &x.F, or T(x.F).
func (s source) field(e ast.Expr) (m member, ok bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return s.field(e.X)
		}
	case *ast.CallExpr:
		if len(e.Args) == 1 && s.info.Types[e.Fun].IsType() {
			return s.field(e.Args[0])
		}
	case *ast.SelectorExpr:
		sel := s.info.Selections[e]
		if sel == nil || sel.Kind() != types.FieldVal {
			return m, false
		}
		owner := ownerOf(sel)
		return member{qualified(owner), e.Sel.Name}, owner != nil
	}
	return m, false
}

// ownerOf is the type that declares a selected field, which may be embedded.
func ownerOf(sel *types.Selection) *types.Named {
	at := sel.Recv()
	for _, index := range sel.Index()[:len(sel.Index())-1] {
		named := namedOf(at)
		if named == nil {
			return nil
		}
		at = named.Underlying().(*types.Struct).Field(index).Type() //nolint:forcetypeassert // a field was selected
	}
	return namedOf(at)
}

func qualified(named *types.Named) string {
	if named == nil || named.Obj().Pkg() == nil {
		return ""
	}
	return named.Obj().Pkg().Path() + "." + named.Obj().Name()
}

// readsKey reports whether an expression selects a field of config.
func (s source) readsKey(e ast.Expr) (reads bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if sel := s.info.Selections[selector]; sel != nil {
				reads = reads || configType(sel.Recv()) != ""
			}
		}
		return !reads
	})
	return reads
}

// value is the type of an expression, or of the target of an address.
func (s source) value(e ast.Expr) types.Type {
	if address, ok := ast.Unparen(e).(*ast.UnaryExpr); ok && address.Op == token.AND {
		return s.info.TypeOf(address.X)
	}
	return s.info.TypeOf(e)
}

// constant reports whether an expression is one, and not zero.
func (s source) constant(e ast.Expr) bool {
	v := s.info.Types[e].Value
	if v == nil {
		return false
	}
	switch v.Kind() {
	case constant.String:
		return constant.StringVal(v) != ""
	case constant.Bool:
		return constant.BoolVal(v)
	}
	return constant.Sign(v) != 0
}

// The guard is tried on a part that gives defaults in each of the ways.
func TestSecondDefaultsAreFound(t *testing.T) {
	t.Parallel()
	const table = `package config
import "time"
type Common struct { Wait int; Name string }
func (c Common) Waits() time.Duration { return time.Duration(c.Wait) }
`
	const part = `package store
import ("cmp"; "time")
type Options struct {
	Assigned, Called, Addressed, Handed time.Duration
	Said int // tries; default 3
	// Told is a name;
	// default 12.
	Told  int
	Bound time.Duration
	Free  time.Duration // default 5 s: no key sets it
	Name, Label string
}
type inner struct{ wait time.Duration }
func or(x, y time.Duration) time.Duration { return x }
func def(x *time.Duration, y time.Duration) {}
func Open(o Options) {
	if o.Assigned <= 0 {
		o.Assigned = 3 * time.Second
	}
	o.Called = or(o.Called, time.Second)
	def(&o.Addressed, time.Minute)
	i := inner{wait: o.Handed}
	if i.wait == 0 {
		i.wait = 5
	}
	o.Label = cmp.Or(o.Label, "tasker")
	o.Bound = max(o.Bound, time.Second)
	if o.Name == "" {
		o.Free = 7
	}
	println("name", o.Name)
	o.Bound = 1
}
`
	const daemon = `package daemon
import ("` + configPath + `"; "` + module + `/internal/store")
func start(c config.Common) {
	o := store.Options{Assigned: c.Waits(), Said: c.Wait, Bound: c.Waits(), Handed: c.Waits()}
	o.Called, o.Addressed, o.Told, o.Name, o.Label = c.Waits(), c.Waits(), int(c.Wait), c.Name, c.Name
	store.Open(o)
}
`
	const gives, says = "internal/store gives " + module + "/internal/store.%s a default of its own: it is set from a key, whose default is in config",
		"internal/store says the default of " + module + "/internal/store.%s in a comment: name its key instead"
	require.ElementsMatch(t, []string{
		fmt.Sprintf(gives, "Options.Assigned"), fmt.Sprintf(gives, "Options.Called"), fmt.Sprintf(gives, "Options.Addressed"),
		fmt.Sprintf(gives, "Options.Label"), fmt.Sprintf(gives, "inner.wait"), fmt.Sprintf(says, "Options.Said"), fmt.Sprintf(says, "Options.Told"),
	}, secondDefaults(planted(t, configPath, table, module+"/internal/store", part, module+"/daemon", daemon)))
}
