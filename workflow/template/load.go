package template

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// maxTemplateFiles bounds the files of one Load.
const maxTemplateFiles = 10_000

// Loaded is a template and the file it came from.
type Loaded struct {
	File     string
	Template *workflow.Template
}

// Load reads template files. A path is a file, a folder (searched for
// *.yml and *.yaml, subfolders included, names with a leading dot left out) or
// a pattern with *, ?, [a-z], ** and {a,b}, such as
// config/tasks/**/*.{yml,yaml}. Files come in lexical order, each once.
//
// The templates without errors are returned even when others have some; the
// problems are those of all files, warnings included, and the error is a
// *Error when one of them is an error. Two files that declare the same
// namespace, name and version with different content are an error.
func Load(paths ...string) ([]Loaded, Problems, error) {
	l := loader{seen: map[string]bool{}}
	for _, p := range paths {
		l.find(p)
	}
	slices.Sort(l.files)
	if len(l.files) > maxTemplateFiles {
		l.fail(l.files[maxTemplateFiles], codeTooLarge, fmt.Errorf("there are %d template files; up to %d are read", len(l.files), maxTemplateFiles))
		l.files = l.files[:maxTemplateFiles]
	}
	var loaded []Loaded
	for _, file := range l.files {
		if t := l.read(file); t != nil {
			loaded = append(loaded, Loaded{File: file, Template: t})
		}
	}
	loaded = l.dropDuplicates(loaded)
	return loaded, l.problems, errorOf(l.problems)
}

type loader struct {
	files    []string
	seen     map[string]bool
	problems Problems
}

func (l *loader) fail(file, code string, err error) {
	l.problems = append(l.problems, Problem{File: file, Severity: SeverityError, Code: code, Message: wording.Line(err.Error())})
}

func (l *loader) add(file string) {
	file = filepath.Clean(file)
	if !l.seen[file] {
		l.seen[file] = true
		l.files = append(l.files, file)
	}
}

// find turns one path into files.
func (l *loader) find(p string) {
	info, err := os.Stat(p)
	switch {
	case err == nil && info.IsDir():
		l.walk(p, isTemplateFile)
	case err == nil:
		l.add(p)
	case hasGlob(p):
		l.glob(p)
	default:
		l.fail(p, CodeIO, fmt.Errorf("cannot be read: %w", pathless(err)))
	}
}

func (l *loader) glob(pattern string) {
	patterns, err := expandBraces(filepath.ToSlash(pattern))
	if err != nil {
		l.fail(pattern, CodeIO, err)
		return
	}
	before := len(l.seen)
	for _, p := range patterns {
		if !hasGlob(p) {
			if info, err := os.Stat(p); err == nil && !info.IsDir() {
				l.add(p)
			}
			continue
		}
		if err := checkGlob(p); err != nil {
			l.fail(pattern, CodeIO, err)
			return
		}
		if _, err := os.Stat(globBase(p)); err != nil {
			continue // reported below when no other alternative has files
		}
		l.walk(globBase(p), func(name string) bool {
			fits, _ := matchGlob(p, filepath.ToSlash(name))
			return fits
		})
	}
	if len(l.seen) == before {
		l.problems = append(l.problems, Problem{
			File: pattern, Severity: SeverityWarning, Code: CodeIO, Message: "no file matches the pattern",
		})
	}
}

// walk adds the matching files below a folder. Links to files are followed, links to folders
// are not, so it ends; names with a leading dot are skipped, such as the internal files of
// mounted Kubernetes ConfigMaps.
func (l *loader) walk(dir string, fits func(name string) bool) {
	root := dir
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		root = target
	}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		shown := dir + strings.TrimPrefix(name, root)
		if dir == "." {
			shown = name
		}
		if err != nil {
			l.fail(shown, CodeIO, fmt.Errorf("cannot be read: %w", pathless(err)))
			if entry != nil && entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if name != root && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() || !fits(shown) || !isFile(name, entry) {
			return nil
		}
		l.add(shown)
		if len(l.files) > maxTemplateFiles {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil {
		l.fail(dir, CodeIO, fmt.Errorf("cannot be read: %w", pathless(err)))
	}
}

// isFile follows a link to its target.
func isFile(name string, entry fs.DirEntry) bool {
	if entry.Type()&fs.ModeSymlink == 0 {
		return entry.Type().IsRegular()
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

func isTemplateFile(name string) bool {
	ext := strings.ToLower(filepath.Ext(name))
	return ext == ".yml" || ext == ".yaml"
}

// pathless drops the path from a file error; the problem names the file.
func pathless(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// read parses one file; nil when it cannot be used.
func (l *loader) read(file string) *workflow.Template {
	src, err := readBounded(file)
	if err != nil {
		l.fail(file, CodeIO, fmt.Errorf("cannot be read: %w", pathless(err)))
		return nil
	}
	t, problems, _ := Parse(file, src) // the error repeats the problems
	l.problems = append(l.problems, problems...)
	return t
}

// readBounded reads one byte more than a template may have, so that
// Parse sees that it is too long.
func readBounded(file string) (src []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxTemplateBytes+1))
}

// dropDuplicates keeps the first file of every template. Identical duplicates only get a
// note.
func (l *loader) dropDuplicates(loaded []Loaded) []Loaded {
	type key struct{ namespace, name, version string }
	first := make(map[key]Loaded, len(loaded))
	return slices.DeleteFunc(loaded, func(t Loaded) bool {
		k := key{t.Template.Namespace, t.Template.Name, t.Template.Version}
		other, twice := first[k]
		if !twice {
			first[k] = t
			return false
		}
		p := Problem{File: t.File, Severity: SeverityInfo, Code: codeDuplicateTemplate,
			Message: fmt.Sprintf("%s/%s:%s is declared with the same content in %s", k.namespace, k.name, k.version, other.File)}
		if t.Template.ContentHash() != other.Template.ContentHash() {
			p.Severity = SeverityError
			p.Message = fmt.Sprintf("%s/%s:%s is declared with other content in %s; change the version or remove one", k.namespace, k.name, k.version, other.File)
		}
		l.problems = append(l.problems, p)
		return true
	})
}

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
			return nil, fmt.Errorf("the pattern %.200q stands for more than %d patterns", pattern, maxBraceExpansions)
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
			return fmt.Errorf("the pattern %.200q is malformed", pattern)
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
					return false, fmt.Errorf("the pattern %.200q is malformed", part)
				}
				next[i+1] = fits
			}
		}
		reach = next
	}
	return reach[len(name)], nil
}
