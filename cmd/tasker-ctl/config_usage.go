package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/tasker-go/tasker/config"
)

func (a *app) configDump() command {
	o := config.Options{LookupEnv: a.env}
	format := "json"
	return command{
		use: "dump", short: "Write the effective configuration as one document; secrets are masked",
		long: `Writes the effective configuration as one document, with the variables of this
process. Secrets are masked: a file for daemons is what config generate writes.`,
		flags: all(
			partFlags((*string)(&o.Context), &o.Environment),
			opt(&o.Path, "config-file", "merged configuration `file`", also("path", "p")),
			opt(&o.Root, "source-dir", "`folder` with base and environments (default $TASKER_CONFIG_ROOT)", also("s")),
			opt(&format, "format,f", "json, yaml or toml", among("json", "yaml", "toml")),
		),
		either: [][2]string{{"config-file", "source-dir"}},
		check: func([]string) error {
			if o.Path == "" && (o.Context == "" || o.Environment == "") {
				return usagef("config dump needs --context and --environment, or --config-file")
			}
			return nil
		},
		local: func(context.Context, []string) error {
			loaded, err := config.Load(o)
			if err != nil {
				return err
			}
			document, err := tree(loaded.Show())
			if err != nil {
				return fmt.Errorf("write the configuration: %w", err)
			}
			if format != "toml" {
				a.global.output = outputFormat(format)
				return a.encode(document)
			}
			encoder := toml.NewEncoder(a.stdout)
			encoder.Indent = ""
			return encoder.Encode(document)
		},
	}
}

// tree makes a document of settings. What is masked or left out is a text in it.
func tree(settings []config.Setting) (document map[string]any, err error) {
	var text strings.Builder
	for _, s := range settings {
		if _, err := toml.Decode("v = "+s.Value, &map[string]any{}); err != nil {
			s.Value = quoted(s.Value)
		}
		fmt.Fprintf(&text, "%s = %s\n", s.Key, s.Value)
	}
	_, err = toml.Decode(text.String(), &document)
	return document, err
}

// usageReport is the answer of `config analyze-usage`.
type usageReport struct {
	Files  int       `json:"files"`
	Keys   []usedKey `json:"keys"`
	Unused []string  `json:"unused"` // keys with an effect that no file sets
}

// usedKey is a key that files set.
type usedKey struct {
	Key    string   `json:"key"`
	Status string   `json:"status"`
	Files  []string `json:"files"`
}

func (a *app) configUsage() command {
	var unused, locations bool
	dir, role, format, file := ".", "all", "text", ""
	return command{
		use: "analyze-usage", short: "Show which keys the configuration files of a folder set, and whether they have an effect",
		long: `Reads the TOML files below a folder that configure daemons, and shows which keys
they set: active, planned or ignored (both without effect), an older spelling, or
unknown. The values are not checked; config validate-sources does.`,
		flags: all(
			opt(&dir, "source-dir", "`folder` to look in"),
			opt(&role, "context", "all, common, orchestration or worker", anyContext, also("c")),
			opt(&format, "format,f", "text or json", among("text", "json")),
			opt(&unused, "show-unused", "also list the keys with an effect that no file sets"),
			outputFile(&file),
			opt(&locations, "show-locations", "list the files that set a key, not only their number"),
		),
		local: func(context.Context, []string) error {
			if format == "json" {
				a.global.output = formatJSON
			}
			r, err := readUsage(dir, contextOf(role).Roots())
			if !unused {
				r.Unused = nil
			}
			if err != nil {
				return err
			}
			return a.intoFile(file, func() error { return a.emit(r, func() { a.showUsage(&r, locations) }) })
		},
	}
}

// maxConfigEntries bounds a search for configuration files.
const maxConfigEntries = 100_000

// readUsage looks through a folder for files with some of these tables.
func readUsage(dir string, roots []string) (r usageReport, err error) {
	set, seen := map[string][]string{}, 0
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return usageError{err}
		}
		if seen++; seen > maxConfigEntries {
			return usagef("%s holds too much: name the folder of the configuration", dir)
		}
		if entry.IsDir() || filepath.Ext(path) != ".toml" {
			return nil
		}
		return r.readFile(path, roots, set)
	})
	for _, key := range slices.Sorted(maps.Keys(set)) {
		status := "unknown"
		if k, ok := config.Lookup(key); ok && k.Older {
			status = "older spelling"
		} else if ok {
			status = k.Status
		}
		r.Keys = append(r.Keys, usedKey{key, status, set[key]})
	}
	for _, k := range config.Keys() {
		if k.Status == config.StatusActive && !k.Older && !k.Member && slices.Contains(roots, k.Root) && set[k.Path] == nil {
			r.Unused = append(r.Unused, k.Path)
		}
	}
	return r, err
}

// readFile takes in the keys of a file that configures daemons.
func (r *usageReport) readFile(path string, roots []string, set map[string][]string) error {
	var document map[string]any
	if _, err := toml.DecodeFile(path, &document); err != nil {
		return usageError{fmt.Errorf("read %s: %w", path, parseFailure(err))}
	}
	found := false
	for _, root := range roots {
		if table, ok := document[root].(map[string]any); ok {
			found = true
			for _, key := range leaves(root, table) {
				if files := set[key]; len(files) == 0 || files[len(files)-1] != path {
					set[key] = append(files, filepath.ToSlash(path))
				}
			}
		}
	}
	if found {
		r.Files++
	}
	return nil
}

// leaves are the keys of a table, without what only documents.
func leaves(name string, table map[string]any) (keys []string) {
	for key, value := range table {
		full := name + "." + key
		switch v := value.(type) {
		case map[string]any:
			if !config.IsDocs(key, value) {
				keys = append(keys, leaves(full, v)...)
			}
		case []map[string]any:
			for _, element := range v {
				keys = append(keys, leaves(full+"[]", element)...)
			}
		default:
			keys = append(keys, full)
		}
	}
	return keys
}

func (a *app) showUsage(r *usageReport, locations bool) {
	listing(a, func(u *usedKey) facts {
		where := fmt.Sprint(len(u.Files))
		if locations {
			where = strings.Join(u.Files, ", ")
		}
		return facts{{"KEY", u.Key}, {"STATUS", u.Status}, {"FILES", where}}
	})(r.Keys)
	for _, key := range r.Unused {
		a.printf("unused: %s\n", key)
	}
	a.printf("\n%s in %s\n", counted(len(r.Keys), "setting"), counted(r.Files, "file"))
}

// anyContext allows all as well.
var anyContext = among(slices.Concat([]string{"all"}, contextWords)...)

func contextOf(word string) config.Context {
	if word == "all" {
		return config.ContextComplete
	}
	return config.Context(word)
}
