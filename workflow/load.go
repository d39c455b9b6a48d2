package workflow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxTemplateFiles bounds the files of one LoadTemplates.
const maxTemplateFiles = 10_000

// LoadedTemplate is a template and the file it came from.
type LoadedTemplate struct {
	File     string
	Template *Template
}

// LoadTemplates reads template files. A path is a file, a folder (searched for
// *.yml and *.yaml, subfolders included, names with a leading dot left out) or
// a pattern with *, ?, [a-z], ** and {a,b}, such as
// config/tasks/**/*.{yml,yaml}. Files come in lexical order, each once.
//
// The templates without errors are returned even when others have some; the
// problems are those of all files, warnings included, and the error is a
// *TemplateError when one of them is an error. Two files that declare the same
// namespace, name and version with different content are an error.
func LoadTemplates(paths ...string) ([]LoadedTemplate, Problems, error) {
	l := templateLoader{seen: map[string]bool{}}
	for _, p := range paths {
		l.find(p)
	}
	slices.Sort(l.files)
	if len(l.files) > maxTemplateFiles {
		l.fail(l.files[maxTemplateFiles], CodeTooLarge, fmt.Errorf("there are %d template files; up to %d are read", len(l.files), maxTemplateFiles))
		l.files = l.files[:maxTemplateFiles]
	}
	var loaded []LoadedTemplate
	for _, file := range l.files {
		if t := l.read(file); t != nil {
			loaded = append(loaded, LoadedTemplate{File: file, Template: t})
		}
	}
	loaded = l.dropDuplicates(loaded)
	return loaded, l.problems, templateError(l.problems)
}

type templateLoader struct {
	files    []string
	seen     map[string]bool
	problems Problems
}

func (l *templateLoader) fail(file, code string, err error) {
	l.problems = append(l.problems, Problem{File: file, Severity: SeverityError, Code: code, Message: cleanMessage(err.Error())})
}

func (l *templateLoader) add(file string) {
	file = filepath.Clean(file)
	if !l.seen[file] {
		l.seen[file] = true
		l.files = append(l.files, file)
	}
}

// find turns one path into files.
func (l *templateLoader) find(p string) {
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

func (l *templateLoader) glob(pattern string) {
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
func (l *templateLoader) walk(dir string, fits func(name string) bool) {
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
func (l *templateLoader) read(file string) *Template {
	src, err := readBounded(file)
	if err != nil {
		l.fail(file, CodeIO, fmt.Errorf("cannot be read: %w", pathless(err)))
		return nil
	}
	t, problems, _ := ParseTemplate(file, src) // the error repeats the problems
	l.problems = append(l.problems, problems...)
	return t
}

// readBounded reads one byte more than a template may have, so that
// ParseTemplate sees that it is too long.
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
func (l *templateLoader) dropDuplicates(loaded []LoadedTemplate) []LoadedTemplate {
	type key struct{ namespace, name, version string }
	first := make(map[key]LoadedTemplate, len(loaded))
	return slices.DeleteFunc(loaded, func(t LoadedTemplate) bool {
		k := key{t.Template.Namespace, t.Template.Name, t.Template.Version}
		other, twice := first[k]
		if !twice {
			first[k] = t
			return false
		}
		p := Problem{File: t.File, Severity: SeverityInfo, Code: CodeDuplicateTemplate,
			Message: fmt.Sprintf("%s/%s:%s is declared with the same content in %s", k.namespace, k.name, k.version, other.File)}
		if t.Template.ContentHash() != other.Template.ContentHash() {
			p.Severity = SeverityError
			p.Message = fmt.Sprintf("%s/%s:%s is declared with other content in %s; change the version or remove one", k.namespace, k.name, k.version, other.File)
		}
		l.problems = append(l.problems, p)
		return true
	})
}
