package template

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
)

// The limits of one Load.
const (
	maxTemplateFiles   = 10_000
	maxTemplatesBytes  = 64 << 20 // size of all files together
	maxEntries         = 200_000  // files and folders met below the folders that are searched
	maxBraceExpansions = 256      // patterns that one pattern with braces stands for
)

// Loaded is a template and the file it came from.
type Loaded struct {
	File     string
	Template *workflow.Template
}

// Load reads template files. A path is a file, a folder (searched for
// *.yml and *.yaml, subfolders included, names with a leading dot left out) or
// a pattern with *, ?, [a-z], ** and {a,b}, such as
// config/tasks/**/*.{yml,yaml}. Files come in lexical order, each once; up to
// 10,000 files and 64 MiB are read.
//
// The templates without errors are returned even when others have some; the
// problems are those of all files, warnings included, and the error is a
// *Error when one of them is an error. Two files that declare the same
// namespace, name and version with different content are an error.
func Load(paths ...string) ([]Loaded, Problems, error) {
	return load([]string{".yml", ".yaml"}, paths)
}

// LoadWithJSON is Load, and finds *.json files in folders too.
func LoadWithJSON(paths ...string) ([]Loaded, Problems, error) {
	return load([]string{".yml", ".yaml", ".json"}, paths)
}

func load(endings, paths []string) ([]Loaded, Problems, error) {
	l := loader{endings: endings, seen: map[string]bool{}}
	for _, p := range paths {
		l.find(p)
	}
	slices.Sort(l.files)
	if len(l.files) > maxTemplateFiles {
		l.fail(l.files[maxTemplateFiles], codeTooLarge, fmt.Errorf("there are more than %d template files, which are not read", maxTemplateFiles))
		l.files = l.files[:maxTemplateFiles]
	}
	var loaded []Loaded
	for _, file := range l.files {
		if l.bytes > maxTemplatesBytes {
			l.fail(file, codeTooLarge, fmt.Errorf("the template files before this one have more than %d MiB; it and the rest are not read", maxTemplatesBytes>>20))
			break
		}
		if t := l.read(file); t != nil {
			loaded = append(loaded, Loaded{File: file, Template: t})
		}
	}
	loaded = l.dropDuplicates(loaded)
	return loaded, l.problems, errorOf(l.problems)
}

type loader struct {
	endings  []string // of the files in folders
	files    []string
	seen     map[string]bool
	problems Problems
	entries  int // met so far
	bytes    int // read so far
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
		l.walk(p, func(name string) bool { return slices.Contains(l.endings, strings.ToLower(filepath.Ext(name))) })
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
		base := globBase(p)
		info, err := os.Stat(base)
		switch {
		case err != nil: // reported below when no other alternative has files
		case !hasGlob(p) && !info.IsDir():
			l.add(p)
		case hasGlob(p):
			l.walk(base, func(name string) bool { return matchGlob(p, filepath.ToSlash(name)) })
		}
	}
	if len(l.seen) == before {
		l.problems = append(l.problems, Problem{
			File: pattern, Severity: severityWarning, Code: CodeIO, Message: "no file matches the pattern",
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
		if l.entries++; l.entries > maxEntries || len(l.files) > maxTemplateFiles {
			return fs.SkipAll
		}
		hidden := name != root && entry != nil && strings.HasPrefix(entry.Name(), ".")
		switch {
		case err != nil:
			l.fail(shown, CodeIO, fmt.Errorf("cannot be read: %w", pathless(err)))
		case !hidden && !entry.IsDir() && fits(shown) && isFile(name, entry):
			l.add(shown)
		}
		if (err != nil || hidden) && entry != nil && entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	switch {
	case err != nil:
		l.fail(dir, CodeIO, fmt.Errorf("cannot be read: %w", pathless(err)))
	case l.entries > maxEntries:
		l.fail(dir, codeTooLarge, fmt.Errorf("there are more than %d files and folders in and below the folders that are searched", maxEntries))
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
	l.bytes += len(src)
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
		p := Problem{File: t.File, Severity: severityInfo, Code: codeDuplicateTemplate,
			Message: fmt.Sprintf("%s/%s:%s is declared with the same content in %s", k.namespace, k.name, k.version, other.File)}
		if t.Template.ContentHash() != other.Template.ContentHash() {
			p.Severity = SeverityError
			p.Message = fmt.Sprintf("%s/%s:%s is declared with other content in %s; change the version or remove one", k.namespace, k.name, k.version, other.File)
		}
		l.problems = append(l.problems, p)
		return true
	})
}

// hasGlob reports whether a path is a pattern.
func hasGlob(p string) bool { return strings.ContainsAny(p, "*?[{") }

// globBase is the part of a pattern before its first wildcard, up to a slash:
// the folder in which to look. Without wildcards it is all of it.
func globBase(pattern string) string {
	i := strings.IndexAny(pattern, "*?[{")
	if i < 0 {
		return pattern
	}
	return path.Clean(pattern[:strings.LastIndex(pattern[:i], "/")+1])
}

// expandBraces turns a{b,c}d into abd and acd; braces may be nested: the innermost are
// expanded first. The error names a pattern that is malformed or stands for too many.
func expandBraces(pattern string) ([]string, error) {
	all := []string{pattern}
	for i := 0; i < len(all); {
		p := all[i]
		at := innermostBraces.FindStringIndex(p)
		if at == nil {
			i++
			continue
		}
		parts := strings.Split(p[at[0]+1:at[1]-1], ",")
		for j := range parts {
			parts[j] = p[:at[0]] + parts[j] + p[at[1]:]
		}
		if all = slices.Replace(all, i, i+1, parts...); len(all) > maxBraceExpansions {
			return nil, fmt.Errorf("the pattern %.200q stands for more than %d patterns", pattern, maxBraceExpansions)
		}
	}
	for _, p := range all {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("the pattern %.200q is malformed", p)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

var innermostBraces = regexp.MustCompile(`\{[^{}]*\}`)

// matchGlob matches a slash-separated path against a well-formed pattern in which ** as a
// whole part matches any number of parts, including none. For every part of the pattern it
// keeps the set of name positions that it can end at, so that many ** do not multiply the
// work.
func matchGlob(pattern, name string) bool {
	parts := strings.Split(path.Clean(name), "/")
	reach := make([]bool, len(parts)+1)
	reach[0] = true
	for want := range strings.SplitSeq(path.Clean(pattern), "/") {
		next := make([]bool, len(parts)+1)
		for i, ok := range reach {
			switch {
			case want == "**":
				next[i] = ok || (i > 0 && next[i-1])
			case ok && i < len(parts):
				next[i+1], _ = path.Match(want, parts[i])
			}
		}
		reach = next
	}
	return reach[len(parts)]
}
