// Package enum gives the numbers of an enumeration their names: those of states, kinds,
// outcomes and policies, which are stored as numbers and sent as names.
//
// What may not enter: the enumerations, which belong to the packages that give them a meaning.
package enum

import (
	"fmt"
	"slices"
)

// Names are the names of an enumeration by number. A number with the empty name is no member.
type Names[E ~int16 | ~uint8] []string

// Has reports whether a number is a member.
func (n Names[E]) Has(e E) bool { return e >= 0 && int(e) < len(n) && n[e] != "" }

// Name returns the name of a number; of one that is no member, a text that says so.
func (n Names[E]) Name(e E) string {
	if !n.Has(e) {
		return fmt.Sprintf("unknown %T %d", e, e)
	}
	return n[e]
}

// Parse finds the first number with a name.
func (n Names[E]) Parse(name string) (E, bool) {
	i := slices.Index(n, name)
	return E(max(i, 0)), i >= 0 && name != "" // #nosec G115 -- within the numbers of E
}

// All lists the members in numeric order.
func (n Names[E]) All() (all []E) {
	for i := range n {
		if e := E(i); n.Has(e) { // #nosec G115 -- within the numbers of E
			all = append(all, e)
		}
	}
	return all
}
