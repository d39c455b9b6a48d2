package main

import (
	"context"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// resource is how things of one kind are written: in lists, where one is shown, and
// in messages about one.
type resource[T any] struct {
	app   *app
	noun  string // "schedule"
	name  func(*T) string
	facts func(*T) facts // what is known of one, in the order of both
}

// fact is one thing that is known of a thing. A name as "Time zone" is in lists and
// where one is shown, "AGE" in lists only, "id" only where one is shown, and there
// "reason?" is left out without a value.
type fact struct {
	name  string
	value any
}

type facts []fact

// stands says where a fact does. What begins with no letter is a heading as it is.
func (f fact) stands() (inLists, inShow bool) {
	first, _ := utf8.DecodeRuneInString(f.name)
	inLists = !unicode.IsLower(first)
	return inLists, !inLists || unicode.IsUpper(first) && f.name != strings.ToUpper(f.name)
}

// heading is that of the column of a fact.
func (f fact) heading() cell {
	if first, _ := utf8.DecodeRuneInString(f.name); !unicode.IsLetter(first) {
		return cell{f.name, bold}
	}
	return cell{strings.ToUpper(strings.TrimSuffix(f.name, "?")), bold}
}

// list writes things as a table.
func (r resource[T]) list(items []T) {
	if t := r.table(items); len(t.rows[0]) > 0 {
		t.write(r.app.stdout)
	}
}

// table has no columns where --columns names one that is not there.
func (r resource[T]) table(items []T) *table {
	t := r.app.newTable()
	for _, f := range r.columns(new(T)) {
		t.rows[0] = append(t.rows[0], f.heading())
	}
	for i := range items {
		var row []any
		for _, f := range r.columns(&items[i]) {
			row = append(row, f.value)
		}
		t.row(row...)
	}
	return t
}

// columns are the facts of one thing that a list shows: those of --columns, or all that
// stand in lists.
func (r resource[T]) columns(x *T) facts {
	known := r.facts(x)
	if v := r.app.view; v != nil && len(v.columns) > 0 {
		return v.pick(known)
	}
	return slices.DeleteFunc(known, func(f fact) bool { listed, _ := f.stands(); return !listed })
}

// show writes what is known of one, a line for each.
func (r resource[T]) show(x *T) { r.app.show(r.facts(x)) }

// said is a message about what one has become.
func (r resource[T]) said(what string) func(*T) {
	return func(x *T) { r.app.printf("%s %s: %s\n", r.noun, oneLine(r.name(x)), what) }
}

// listing writes things of which only tables are made.
func listing[T any](a *app, known func(*T) facts) func([]T) {
	return resource[T]{app: a, facts: known}.list
}

// show writes facts that are not left out.
func (a *app) show(known facts) {
	t := a.newPairs()
	for _, f := range known {
		_, shown := f.stands()
		name, optional := strings.CutSuffix(f.name, "?")
		if value := cellOf(f.value); shown && (!optional || value.text != "-") {
			t.row(strings.ToLower(name), value)
		}
	}
	t.write(a.stdout)
}

// offers completes an argument with the names of what a query lists.
func offers[L, T any](q query[L], items func(L) []T, name func(*T) string) query[[]string] {
	return func(ctx context.Context, c *api, before []string) ([]string, error) {
		list, err := q(ctx, c, before)
		if err != nil {
			return nil, err
		}
		return namesOf(items(list), name), nil
	}
}
