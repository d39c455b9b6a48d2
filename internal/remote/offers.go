package remote

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/workflow"
)

// offer is what a session can run: a method of a callable.
type offer struct{ callable, method string }

// offerOf returns the offer that a template means.
func offerOf(def workflow.HandlerReference) offer {
	return offer{def.Callable, cmp.Or(def.Method, defaultMethod)}
}

// canonical is the offer without the differences of spelling.
func (o offer) canonical() offer { return offer{workflow.CanonicalCallable(o.callable), o.method} }

const (
	// defaultMethod is the entry point of a template without a method.
	defaultMethod = "call"
	// anything stands for any method, and at the end of a callable for any end; of resolvers only.
	anything = "*"
)

// offers are what a session can run. They follow the resolvers of a worker: exact names
// first, then other spellings, then the resolvers of the process.
type offers struct {
	exact    map[offer]bool
	spelled  map[offer][]string // the offered callables by their canonical offers
	resolved []Callable         // those with a resolver
}

func offersOf(list []Callable) offers {
	o := offers{exact: make(map[offer]bool, len(list)), spelled: make(map[offer][]string, len(list))}
	for _, c := range list {
		if c.Resolver != "" {
			o.resolved = append(o.resolved, c)
			continue
		}
		for _, method := range append([]string{defaultMethod}, c.Methods...) {
			one := offer{c.Callable, method}
			if !o.exact[one] {
				o.exact[one] = true
				o.spelled[one.canonical()] = append(o.spelled[one.canonical()], c.Callable)
			}
		}
	}
	return o
}

// find returns the offered callable that runs a step; empty without one. A spelling that could
// mean several callables means none.
func (o *offers) find(def workflow.HandlerReference) string {
	wanted, resolver := offerOf(def), def.ResolverName()
	if resolver == hubName { // any session, whatever the process finds it by
		resolver = ""
	}
	if (resolver == "" || resolver == workflow.ResolverByName) && o.exact[wanted] {
		return def.Callable
	}
	if resolver == "" || resolver == workflow.ResolverBySpelling {
		if names := o.spelled[wanted.canonical()]; len(names) == 1 {
			return names[0]
		}
	}
	if slices.ContainsFunc(o.resolved, func(c Callable) bool { return (resolver == "" || resolver == c.Resolver) && c.covers(wanted) }) {
		return def.Callable
	}
	return ""
}

// covers reports whether a resolver of a process takes a callable and its method.
func (c *Callable) covers(wanted offer) bool {
	prefix, open := strings.CutSuffix(c.Callable, anything)
	named := c.Callable == wanted.callable || open && strings.HasPrefix(wanted.callable, prefix)
	return named && (wanted.method == defaultMethod || slices.Contains(c.Methods, wanted.method) || slices.Contains(c.Methods, anything))
}

// check says what is wrong with an offered callable.
func (c *Callable) check() error {
	for _, name := range append([]string{c.Callable}, c.Methods...) {
		if name == "" || len(name) > maxName {
			return invalid("invalid callable or method %.64q: want 1 to %d bytes", name, maxName)
		}
	}
	switch {
	case len(c.Methods) > maxCallables:
		return invalid("invalid methods of callable %q: want at most %d", c.Callable, maxCallables)
	case len(c.Resolver) > maxName:
		return invalid("invalid resolver %.64q: want at most %d bytes", c.Resolver, maxName)
	case c.Resolver != "" && (workflow.HandlerReference{Resolver: c.Resolver}).BuiltIn():
		return invalid("invalid resolver %q: want another name than those of the built-in resolvers", c.Resolver)
	case c.Resolver == "" && (strings.HasSuffix(c.Callable, anything) || slices.Contains(c.Methods, anything)):
		return invalid("invalid callable %q: want a resolver where it or a method is *", c.Callable)
	}
	return nil
}

// index knows which sessions offer something. The hub's lock guards it.
type index struct {
	exact, spelled map[offer]map[*session]bool
	resolved       map[*session]bool // those with resolvers
}

func newIndex() index {
	return index{map[offer]map[*session]bool{}, map[offer]map[*session]bool{}, map[*session]bool{}}
}

func (x *index) add(s *session) {
	for o := range s.offers.exact {
		insert(x.exact, o, s)
	}
	for o := range s.offers.spelled {
		insert(x.spelled, o, s)
	}
	if len(s.offers.resolved) > 0 {
		x.resolved[s] = true
	}
}

func (x *index) remove(s *session) {
	for o := range s.offers.exact {
		remove(x.exact, o, s)
	}
	for o := range s.offers.spelled {
		remove(x.spelled, o, s)
	}
	delete(x.resolved, s)
}

func insert(sets map[offer]map[*session]bool, o offer, s *session) {
	if sets[o] == nil {
		sets[o] = map[*session]bool{}
	}
	sets[o][s] = true
}

func remove(sets map[offer]map[*session]bool, o offer, s *session) {
	if delete(sets[o], s); len(sets[o]) == 0 {
		delete(sets, o)
	}
}

// takers calls yield with sessions that can run a step of a namespace, "" of any, until it
// returns false. Those with other spellings or resolvers come only where none has the exact name.
func (x *index) takers(namespace string, def workflow.HandlerReference, yield func(*session) bool) {
	found := false
	among := func(sessions map[*session]bool) (more bool) {
		for s := range sessions {
			if (namespace == "" || s.in(namespace)) && s.offers.find(def) != "" {
				if found = true; !yield(s) {
					return false
				}
			}
		}
		return true
	}
	wanted := offerOf(def)
	if !among(x.exact[wanted]) || found {
		return
	}
	if among(x.spelled[wanted.canonical()]) {
		among(x.resolved)
	}
}

// any reports whether a session can run a step of a namespace, "" of any.
func (x *index) any(namespace string, def workflow.HandlerReference) (found bool) {
	x.takers(namespace, def, func(*session) bool {
		found = true
		return false
	})
	return found
}
