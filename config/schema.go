package config

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Keys returns every key, in the order of the documentation. The slice is the
// caller's.
func Keys() []Key { return slices.Clone(theSchema().keys) }

// schema is the index over all keys.
type schema struct {
	keys   []Key
	byPath map[string]*Key
	tables map[string]bool // every proper prefix of a path
}

// theSchema is read off the annotations once, and never changed.
var theSchema = sync.OnceValue(func() *schema {
	s := &schema{keys: readKeys(), byPath: map[string]*Key{}, tables: map[string]bool{}}
	for i := range s.keys {
		k := &s.keys[i]
		s.byPath[k.Path] = k
		for table := k.Path; ; {
			dot := strings.LastIndexByte(table, '.')
			if dot < 0 {
				break
			}
			table = table[:dot]
			s.tables[table] = true
		}
	}
	return s
})

// lookup finds the key a path stands for. Indexes of arrays of tables
// ("api_keys[3].key") are those of any element ("api_keys[].key").
func (s *schema) lookup(path string) (*Key, bool) {
	k, ok := s.byPath[anyElement(path)]
	return k, ok
}

// anyElement replaces each "[n]" by "[]".
func anyElement(path string) string {
	open := strings.IndexByte(path, '[')
	if open < 0 {
		return path
	}
	closing := strings.IndexByte(path[open:], ']')
	if closing < 0 {
		return path
	}
	return path[:open] + "[]" + anyElement(path[open+closing+1:])
}

// unknown is the problem of a key that there is not. It never shows the value: a
// misspelt key may hold a secret.
func (s *schema) unknown(path string, at Position) Problem {
	return Problem{Position: at, Key: path, Rule: "a known key", Message: "unknown key " + s.suggest(path)}
}

// suggest adds the nearest key or table to an unknown one.
func (s *schema) suggest(path string) string {
	if near := s.nearest(path); near != "" {
		return fmt.Sprintf("%s; did you mean %s?", path, near)
	}
	return path
}

// nearest returns the known key or table a reader most likely meant by path,
// or "" when nothing is close.
func (s *schema) nearest(path string) string {
	path = anyElement(path)
	best, bestDistance := "", 1+max(2, min(len(path)/4, 8))
	consider := func(candidate string) {
		if diff := len(candidate) - len(path); diff >= bestDistance || -diff >= bestDistance {
			return
		}
		d := editDistance(path, candidate)
		if d < bestDistance || (d == bestDistance && candidate < best) {
			best, bestDistance = candidate, d
		}
	}
	for i := range s.keys {
		consider(s.keys[i].Path)
	}
	for table := range s.tables {
		consider(table)
	}
	if best == "" {
		best = s.sameName(path)
	}
	return best
}

// sameName finds a key of the same last name elsewhere: the usual mistake of
// putting a right key under a wrong table. Keys of the same root win.
func (s *schema) sameName(path string) string {
	name := path[strings.LastIndexByte(path, '.')+1:]
	root, _, _ := strings.Cut(path, ".")
	found := ""
	for i := range s.keys {
		k := &s.keys[i]
		if k.name() != name || k.Member {
			continue
		}
		if k.Root == root {
			return k.Path
		}
		if found == "" {
			found = k.Path
		}
	}
	return found
}

// editDistance is the number of single-byte insertions, deletions,
// replacements and swaps of neighbours that turn a into b.
func editDistance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
