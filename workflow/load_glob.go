package workflow

import (
	"fmt"
	"path"
	"strings"
)

// maxBraceExpansions bounds the expansion of one pattern with braces.
const maxBraceExpansions = 256

// hasGlob reports whether a path is a pattern.
func hasGlob(p string) bool { return strings.ContainsAny(p, "*?[{") }

// globBase is the part of a pattern before its first wildcard, up to a slash:
// the folder in which to look.
func globBase(pattern string) string {
	i := strings.IndexAny(pattern, "*?[{")
	if i < 0 {
		return pattern
	}
	dir := pattern[:strings.LastIndex(pattern[:i], "/")+1]
	switch dir {
	case "":
		return "."
	case "/":
		return dir
	}
	return strings.TrimSuffix(dir, "/")
}

// expandBraces turns a{b,c}d into abd and acd; braces may be nested.
func expandBraces(pattern string) ([]string, error) {
	work, done := []string{pattern}, []string(nil)
	for len(work) > 0 {
		if len(work)+len(done) > maxBraceExpansions {
			return nil, fmt.Errorf("the pattern %q stands for more than %d patterns", clip(pattern, 200), maxBraceExpansions)
		}
		p := work[0]
		work = work[1:]
		open, shut, commas := findBraces(p)
		if shut < 0 {
			done = append(done, p)
			continue
		}
		var next []string
		from := open + 1
		for _, to := range append(commas, shut) {
			next = append(next, p[:open]+p[from:to]+p[shut+1:])
			from = to + 1
		}
		work = append(next, work...)
	}
	return done, nil
}

// findBraces locates the first complete pair of braces and its own commas;
// shut is -1 when there is none.
func findBraces(p string) (open, shut int, commas []int) {
	depth := 0
	for i := range len(p) {
		switch p[i] {
		case '{':
			if depth == 0 {
				open = i
			}
			depth++
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth == 1 {
				return open, i, commas
			}
			depth = max(depth-1, 0)
		}
	}
	return 0, -1, nil
}

// matchGlob matches a slash-separated path against a pattern in which ** as a whole part
// matches any number of parts, including none.
func matchGlob(pattern, name string) (bool, error) {
	return matchParts(strings.Split(path.Clean(pattern), "/"), strings.Split(path.Clean(name), "/"))
}

// checkGlob reports a pattern that is malformed.
func checkGlob(pattern string) error {
	for part := range strings.SplitSeq(pattern, "/") {
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("the pattern %q is malformed", clip(pattern, 200))
		}
	}
	return nil
}

// matchParts keeps, for every part of the pattern, the set of name positions
// that it can end at, so that many ** do not multiply the work.
func matchParts(pattern, name []string) (bool, error) {
	reach := make([]bool, len(name)+1)
	reach[0] = true
	for _, part := range pattern {
		next := make([]bool, len(name)+1)
		for i, ok := range reach {
			switch {
			case part == "**":
				next[i] = ok || (i > 0 && next[i-1])
			case ok && i < len(name):
				fits, err := path.Match(part, name[i])
				if err != nil {
					return false, fmt.Errorf("the pattern %q is malformed", clip(part, 200))
				}
				next[i+1] = fits
			}
		}
		reach = next
	}
	return reach[len(name)], nil
}
