package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/config"
)

func (a *app) documents() command {
	return command{
		use: "docs", short: "Write the documentation of the configuration",
		long: `Writes the documentation of the configuration. It is compiled into this program,
and of its version.`,
		commands: []command{a.docsReference(), a.docsAnnotated(), a.docsSection(), a.docsExplain(), a.docsCoverage(), a.docsIndex()},
	}
}

func outputFile(file *string) flags {
	return opt(file, "output,o", "`file` to write (default stdout)")
}

// intoFile writes what a function writes to stdout into a file, where one is named.
func (a *app) intoFile(file string, write func() error) error {
	stdout := a.stdout
	var b bytes.Buffer
	a.stdout = &b
	err := write()
	a.stdout = stdout
	if err != nil {
		return err
	}
	return a.writeDocument(file, b.Bytes())
}

func (a *app) docsReference() command {
	role, format, file := "all", "markdown", ""
	return command{
		use: "reference", short: "Write the reference of all configuration keys",
		flags: all(
			opt(&role, "context", "all, common, orchestration or worker", anyContext, also("c")),
			opt(&format, "format,f", "markdown, json or yaml", among("markdown", "json", "yaml")),
			outputFile(&file),
		),
		local: func(context.Context, []string) error {
			return a.intoFile(file, func() error {
				if format != "markdown" {
					a.global.output = outputFormat(format)
					return a.encode(keysBelow("", contextOf(role)))
				}
				_, err := a.stdout.Write(referenceOf(role))
				return err
			})
		},
	}
}

// referenceOf is the reference page, or the parts of it that a context has.
func referenceOf(role string) []byte {
	text := string(config.ReferenceMarkdown())
	if role == "all" {
		return []byte(text)
	}
	return []byte(sections(text, "\n## ", func(heading string) bool { return slices.Contains(contextOf(role).Roots(), heading) }))
}

// sections keeps what stands before the first heading, and the parts with headings that
// are wanted.
func sections(text, mark string, wanted func(heading string) bool) string {
	parts := strings.Split(text, mark)
	kept := parts[0]
	for _, part := range parts[1:] {
		if heading, _, _ := strings.Cut(part, "\n"); wanted(heading) {
			kept += mark + part
		}
	}
	return kept
}

func (a *app) docsAnnotated() command {
	role, environment, file := string(config.ContextComplete), "production", ""
	return command{
		use: "annotated", short: "Write a configuration file with a comment for each key",
		flags: all(partFlags(&role, &environment), outputFile(&file)),
		local: func(context.Context, []string) error {
			text, err := config.Generate(config.Context(role), environment)
			if err != nil {
				return usageError{err}
			}
			return a.writeDocument(file, text)
		},
	}
}

func (a *app) docsSection() command {
	var path, environment, file string
	return command{
		use: "section", short: "Write the reference of one table and those below it",
		flags: all(
			opt(&path, "parameter", "name of a table, such as common.database", needed, offering(completeConfigKeys), also("path", "p")),
			opt(&environment, "environment,e", "write it as an annotated file for this environment", anEnvironment),
			outputFile(&file),
		),
		local: func(context.Context, []string) error {
			text, mark := config.ReferenceMarkdown(), "\n### ["
			if environment != "" {
				var err error
				if text, err = config.Generate(config.ContextComplete, environment); err != nil {
					return usageError{err}
				}
				mark = "\n["
			}
			_, body, _ := strings.Cut(sections("|"+string(text), mark, func(heading string) bool { return below(strings.TrimSuffix(heading, "]"), path) }), mark)
			if body == "" {
				return hinted{usagef("there is no table %s", path), "see tasker-ctl config explain"}
			}
			body, _, _ = strings.Cut(body, "\n## ") // the heading of the next part
			return a.writeDocument(file, []byte(mark[1:]+strings.TrimRight(body, "\n")+"\n"))
		},
	}
}

func (a *app) docsExplain() command {
	var name, environment string
	return command{
		use: "explain", short: "Explain a configuration key, or list the keys of a table",
		flags: all(
			opt(&name, "parameter", "name of the key or table", needed, offering(completeConfigKeys), also("p")),
			opt(&environment, "environment,e", "also show the defaults of this environment", anEnvironment),
		),
		local: func(context.Context, []string) error { return a.explain(name, config.ContextComplete, environment) },
	}
}

// coverage is how much of a part of the configuration is described, and has an effect.
type coverage struct {
	Part      string `json:"part"`
	Keys      int    `json:"keys"`
	Described int    `json:"described"`
	Active    int    `json:"active"`
}

func (a *app) docsCoverage() command {
	return command{
		use: "coverage", short: "Count the keys, and how many are described and have an effect",
		local: func(context.Context, []string) error {
			var list []coverage
			for _, root := range config.ContextComplete.Roots() {
				list = append(list, coverage{Part: root, Keys: keysOf(root, func(config.Key) bool { return true }),
					Described: keysOf(root, func(k config.Key) bool { return k.Description != "" }),
					Active:    keysOf(root, func(k config.Key) bool { return k.Status == config.StatusActive })})
			}
			return a.emit(list, func() {
				listing(a, func(c *coverage) facts {
					return facts{{"PART", c.Part}, {"KEYS", c.Keys}, {"DESCRIBED", c.Described}, {"ACTIVE", c.Active}}
				})(list)
			})
		},
	}
}

// keysOf counts the keys of a part, older spellings aside.
func keysOf(root string, counts func(config.Key) bool) (n int) {
	for _, k := range config.Keys() {
		if k.Root == root && !k.Older && counts(k) {
			n++
		}
	}
	return n
}

func (a *app) docsIndex() command {
	var file string
	return command{
		use: "index", short: "Write a list of all configuration keys by name",
		flags: outputFile(&file),
		local: func(context.Context, []string) error {
			keys := config.Keys()
			slices.SortFunc(keys, func(x, y config.Key) int { return strings.Compare(x.Path, y.Path) })
			var b strings.Builder
			b.WriteString("# Configuration keys\n\n")
			for _, k := range keys {
				if !k.Older {
					fmt.Fprintf(&b, "- `%s`: %s\n", k.Path, k.Description)
				}
			}
			return a.writeDocument(file, []byte(b.String()))
		},
	}
}
