package config

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Context says which parts of the configuration a program needs.
type Context string

// The contexts. Each daemon reads the common part and its own.
const (
	ContextCommon        Context = "common"
	ContextOrchestration Context = "orchestration"
	ContextWorker        Context = "worker"
	ContextComplete      Context = "complete"
)

// Roots lists the top-level tables of the context; nil for an unknown one.
func (c Context) Roots() []string {
	switch c {
	case ContextCommon:
		return []string{"common"}
	case ContextOrchestration, ContextWorker:
		return []string{"common", string(c)}
	case ContextComplete, "":
		return []string{"common", "orchestration", "worker"}
	}
	return nil
}

// defaultEnvironment is used when nothing names one.
const defaultEnvironment = "development"

// The variables that say where configuration is found.
const (
	envPath        = "TASKER_CONFIG_PATH"
	envRoot        = "TASKER_CONFIG_ROOT"
	envEnvironment = "TASKER_ENV"
)

// Options say what to load and from where. The zero value loads everything
// from the process environment.
type Options struct {
	// Context limits the load; empty means ContextComplete.
	Context Context
	// LookupEnv reads environment variables; nil means os.LookupEnv.
	LookupEnv func(string) (string, bool)
	// Path names the one merged file to read instead of layers; empty means
	// $TASKER_CONFIG_PATH. It goes before Root.
	Path string
	// Root names the directory that holds base/ and environments/, or
	// tasker/base/ and so on; empty means $TASKER_CONFIG_ROOT.
	Root string
	// Environment names the environment; empty means $TASKER_ENV, and
	// "development" without it.
	Environment string
	// WorkerID is the identity to use when none is configured. A daemon that
	// loads again passes the one it has; empty makes a new one.
	WorkerID string

	bare bool // the embedded defaults alone
}

// Loaded is a valid configuration. It is not changed after Load and may be
// read by any number of goroutines.
type Loaded struct {
	// Context is the context that was loaded; parts outside it are zero.
	Context Context
	// Environment is the effective common.execution.environment.
	Environment string

	Common        Common        `toml:"common"`
	Orchestration Orchestration `toml:"orchestration"`
	Worker        Worker        `toml:"worker"`

	// Warnings are findings that do not keep the configuration from use.
	Warnings []Problem
	// WithoutEffect are the keys that a file or a variable has set and that are
	// planned or ignored, each with the reason.
	WithoutEffect []Problem
	// Refusals are what keeps a daemon from starting; see Refused.
	Refusals []Problem

	entries map[string]*entry
}

// Load reads, merges, checks and decodes a configuration. Layers, each over
// the one before: the embedded defaults; the embedded overlay of the
// environment (unless Root brings its own, or Path is given); the base files
// of Root; the environment files of Root; the single file of Path; environment
// variables. Tables merge key by key, other values replace.
//
// Everything found wrong is returned together in a *ValidationError.
func Load(opts Options) (*Loaded, error) {
	asked := opts.Environment
	opts = opts.resolve()
	v, err := newValues(opts.Context)
	if err != nil {
		return nil, err
	}
	v.lookup = opts.LookupEnv
	for _, s := range sources(opts, &v.findings) {
		s.merge(v)
	}
	v.applyEnvironment()
	v.setEnvironmentName(asked)
	replaceLegacy(v)
	v.checkAll()
	own := v.str(keyWorkerID)
	derive(v, opts.WorkerID)
	checkRules(v)
	refuseRules(v)
	environmentNameRule(v, opts)
	if err := v.findings.err(); err != nil {
		return nil, err
	}
	f := v.findings
	f.idle = slices.DeleteFunc(f.idle, func(p Problem) bool { // told already
		return slices.ContainsFunc(f.refusals, func(r Problem) bool { return r.Key == p.Key })
	})
	loaded := &Loaded{
		Context: opts.Context, entries: v.entries,
		Warnings: sorted(f.warnings), Refusals: sorted(f.refusals), WithoutEffect: sorted(f.idle),
	}
	loaded.decode()
	loaded.Worker.Exclusive = own != "" && own != sharedWorkerID
	loaded.Environment = loaded.Common.Execution.Environment
	return loaded, nil
}

// newValues are those of a context, none as yet.
func newValues(context Context) (*values, error) {
	roots := context.Roots()
	if roots == nil {
		return nil, fmt.Errorf("unknown configuration context %q (common, orchestration, worker, complete)", context)
	}
	return &values{roots: roots, entries: map[string]*entry{}}, nil
}

func (v *values) inContext(k *Key) bool { return slices.Contains(v.roots, k.Root) }

// resolve fills what was left out from the environment.
func (o Options) resolve() Options {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if o.Context == "" {
		o.Context = ContextComplete
	}
	fill := func(field *string, name string) {
		if *field == "" {
			*field, _ = o.LookupEnv(name)
		}
	}
	if o.Root == "" { // a path given in the code goes before a root in the environment, and the reverse
		fill(&o.Path, envPath)
	}
	if o.Path == "" {
		fill(&o.Root, envRoot)
	}
	fill(&o.Environment, envEnvironment)
	if o.Environment == "" {
		o.Environment = defaultEnvironment
	}
	return o
}

// sources collects the documents to read, lowest layer first.
func sources(opts Options, f *findings) []source {
	roots := opts.Context.Roots()
	list := embeddedSources("base", layerBase, roots)
	if opts.bare || !isEnvironmentName(opts.Environment) {
		return list // such a name is never part of a path; the key's own check reports it
	}
	if opts.Path != "" {
		return append(list, fileSource(opts.Path, f)...)
	}
	overlay := embeddedSources("environments/"+opts.Environment, layerOverlay, roots)
	if opts.Root == "" {
		return append(list, overlay...)
	}
	dir, err := layoutDir(opts.Root)
	if err != nil {
		f.fail(Problem{Position: Position{File: opts.Root}, Message: err.Error()})
		return list
	}
	base := dirSources(filepath.Join(dir, "base"), roots, f)
	if own := filepath.Join(dir, "environments", opts.Environment); isDir(own) {
		return slices.Concat(list, base, dirSources(own, roots, f))
	}
	return slices.Concat(list, overlay, base)
}

const environmentRule = "test, development, production or the name of a folder in environments/ (a–z, 0–9, _ and -)"

var environmentName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

func isEnvironmentName(name string) bool { return environmentName.MatchString(name) }

// environmentNameRule accepts our three environments and those for which Root
// has a folder; a single merged file may name any.
func environmentNameRule(v *values, opts Options) {
	const path = "common.execution.environment"
	name := v.str(path)
	if name == "" || len(embeddedSources("environments/"+name, layerOverlay, ContextComplete.Roots())) > 0 {
		return
	}
	if opts.Root != "" {
		if dir, err := layoutDir(opts.Root); err == nil && isDir(filepath.Join(dir, "environments", name)) {
			return
		}
	}
	message := fmt.Sprintf("%s is none of our environments: it should be %s", v.said(path), environmentRule)
	if opts.Path != "" {
		v.warn(message, path)
		return
	}
	v.fail(message, path)
}

// embedded holds the defaults and the overlays of the three environments, so
// that a daemon runs without any file.
//
//go:embed tasker
var embedded embed.FS

// embeddedSources reads the role files of an embedded directory; there are
// none for an environment that is not ours.
func embeddedSources(dir string, rank layer, roots []string) (list []source) {
	for _, root := range roots {
		data, err := embedded.ReadFile("tasker/" + dir + "/" + root + ".toml")
		if err == nil {
			list = append(list, source{name: "embedded:" + dir + "/" + root + ".toml", text: string(data), layer: rank})
		}
	}
	return list
}

// layoutDir finds base/ and environments/ in root or in the usual places
// below it.
func layoutDir(root string) (string, error) {
	for _, sub := range []string{"tasker", ".", "config/tasker"} {
		dir := filepath.Join(root, sub)
		if isDir(filepath.Join(dir, "base")) || isDir(filepath.Join(dir, "environments")) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("configuration root has neither base nor environments, nor tasker/base or tasker/environments")
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// dirSources reads the role files that exist in dir.
func dirSources(dir string, roots []string, f *findings) (list []source) {
	for _, root := range roots {
		path := filepath.Join(dir, root+".toml")
		if _, err := os.Stat(path); os.IsNotExist(err) {
			continue
		}
		list = append(list, fileSource(path, f)...)
	}
	return list
}

func fileSource(path string, f *findings) []source {
	text, err := readBounded(path, maxFileBytes)
	if err != nil {
		f.fail(Problem{Position: Position{File: path}, Message: fmt.Sprintf("reading the configuration: %v", err)})
		return nil
	}
	return []source{{name: path, text: text, layer: layerFile}}
}

// setEnvironmentName makes the environment that the caller asked for the
// effective one; a variable has been applied already.
func (v *values) setEnvironmentName(name string) {
	if name == "" {
		return
	}
	k := theSchema().byPath["common.execution.environment"]
	v.entries[k.Path] = &entry{key: k, value: name, layer: layerEnv, verbatim: true, pos: Position{File: "option"}}
}

// withoutEffect reports a key that is set and has no effect.
func (e *entry) withoutEffect() Problem {
	return e.problem(e.key.Path + " has no effect: " + e.key.statusText())
}

// usedElsewhere reports whether a variable sets a key that has an effect besides: it is not set
// in vain.
func (v *values) usedElsewhere(e *entry) bool {
	return slices.ContainsFunc(e.env, func(name string) bool {
		for _, other := range v.entries {
			if other.key.Status == StatusActive && slices.Contains(other.env, name) {
				return true
			}
		}
		return false
	})
}

// checkAll checks every value in effect, in the order of the documentation,
// and warns of keys that files set in vain.
func (v *values) checkAll() {
	for _, k := range theSchema().keys {
		e, ok := v.entries[k.Path]
		if !ok {
			continue
		}
		v.check(e)
		if e.key.Status != StatusActive && e.layer >= layerFile && !v.usedElsewhere(e) {
			v.findings.idle = append(v.findings.idle, e.withoutEffect())
		}
	}
}
