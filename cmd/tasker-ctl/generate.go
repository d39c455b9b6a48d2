package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/internal/codegen"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

const handlerHelp = `Writes a function for each callable of a template, which takes the context of the
task and the results of the steps before, and returns the result of its step, with
the types of "generate types". In Go it is a handler of the worker SDK. In Python
and TypeScript it is the function; how it is served is described with the worker
protocol.`

// generation is what the commands of `generate` have in common.
type generation struct {
	app      *app
	template string
	output   string
	tests    bool
	force    bool
	codegen.Options
}

func (a *app) generate() command {
	types, handler, scaffold := &generation{app: a}, &generation{app: a}, &generation{app: a}
	return command{
		use: "generate", short: "Generate types and handlers from a template",
		commands: []command{
			types.command(command{
				use: "types", short: "Write the types of the schemas of a template",
				long: `Writes a type for each JSON Schema of a template: the context of its tasks
(input_schema) and the results of its steps (result_schema). What a language has no
type for is any value, with the reason beside it.`,
				example: "  tasker-ctl generate types -t order.yaml -l go -o order_types.go",
				flags:   outputFile(&types.output),
			}, types.writeTypes),
			handler.command(command{
				use: "handler", short: "Write skeletons of the handlers of a template", long: handlerHelp,
				example: "  tasker-ctl generate handler -t shop/order:1.0.0 -l python -s charge",
				flags: all(outputFile(&handler.output),
					opt(&handler.tests, "with-tests", "write tests beside --output"), overwriting(&handler.force)),
				check: handler.checkOutput,
			}, handler.writeHandlers),
			scaffold.command(command{
				use: "scaffold", short: "Write types, handlers and tests into a folder",
				long: `Writes the types, the handlers and their tests into a folder. Where one of the files
is there already, nothing is written without --force.`,
				example: "  tasker-ctl generate scaffold -t order.yaml -l typescript -o handlers",
				flags:   all(opt(&scaffold.output, "output,o", "`folder` to write to", needed), overwriting(&scaffold.force)),
			}, scaffold.writeAll),
		},
	}
}

// command completes the description of a command of `generate`.
func (g *generation) command(d command, write func(codegen.Files) error) command {
	d.flags = all(
		opt(&g.template, "template,t", "`file` of the template, - for stdin, or its name on the server",
			needed, offering(g.app.completeTemplateOrFile)),
		opt(&g.Language, "language", oneOf(codegen.Languages()), needed, among(codegen.Languages()...), also("l")),
		opt(&g.Step, "step", "only for this step", also("s")),
		d.flags,
	)
	d.local = func(ctx context.Context, _ []string) error {
		t, err := g.app.templateAt(ctx, g.template)
		if err != nil {
			return err
		}
		files, err := codegen.Generate(t, g.Options)
		if err != nil {
			return usageError{err}
		}
		return write(files)
	}
	return d
}

// checkOutput is the check of a command that writes handlers: tests import them by the
// name of their file.
func (g *generation) checkOutput([]string) error {
	if g.output != "" {
		g.Handlers = filepath.Base(g.output)
	}
	if g.tests && (g.output == "" || g.output == "-") {
		return usagef("--with-tests needs --output: the tests are a file of their own")
	}
	return nil
}

func overwriting(force *bool) flags { return opt(force, "force", "overwrite files") }

func (g *generation) writeTypes(f codegen.Files) error {
	return g.app.writeDocument(g.output, f.Types.Text)
}

func (g *generation) writeHandlers(f codegen.Files) error {
	if g.output == "" || g.output == "-" {
		return g.app.writeDocument("", f.Handlers.Text)
	}
	files := []codegen.File{{Name: filepath.Base(g.output), Text: f.Handlers.Text}}
	if g.tests {
		files = append(files, f.Tests)
	}
	return g.app.writeFiles(filepath.Dir(g.output), files, g.force)
}

func (g *generation) writeAll(f codegen.Files) error {
	return g.app.writeFiles(g.output, []codegen.File{f.Types, f.Handlers, f.Tests}, g.force)
}

// writeFiles writes all of the files or, where one is there already, none.
func (a *app) writeFiles(dir string, files []codegen.File, force bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // sources are for everyone
		return fmt.Errorf("make the folder: %w", err)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(path); !force && !errors.Is(err, fs.ErrNotExist) {
			return usagef("%s is there already; overwrite it with --force", path)
		}
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := a.writeDocument(path, f.Text); err != nil {
			return err
		}
		a.printf("%s\n", path)
	}
	return nil
}

// templateAt reads a template from a file, from stdin, or from the server where there is
// no such file.
func (a *app) templateAt(ctx context.Context, name string) (*workflow.Template, error) {
	_, err := os.Stat(name)
	ending := filepath.Ext(name)
	isFile := err == nil || name == "-" || ending == ".yaml" || ending == ".yml" || ending == ".json"
	if !isFile {
		t, err := a.templateNamed(ctx, name)
		return t, unreachable(orchestrator, err)
	}
	value := "@" + name
	if name == "-" {
		name, value = "stdin", "-"
	}
	src, err := a.readInput(value, maxTemplateInput)
	if err != nil {
		return nil, err
	}
	t, _, err := template.Parse(name, src)
	if err != nil {
		return nil, usageError{err}
	}
	return t, nil
}

// templateNamed reads a template from the server.
func (a *app) templateNamed(ctx context.Context, name string) (*workflow.Template, error) {
	c, err := a.client(ctx, orchestrator)
	if err != nil {
		return nil, err
	}
	ref, err := templateRef{}.parse(name).find(ctx, c)
	if err != nil {
		return nil, err
	}
	detail, err := c.Template(ctx, ref.namespace, ref.name, ref.version)
	if err != nil {
		return nil, err
	}
	t := parsedConfiguration(detail)
	if t == nil {
		return nil, fmt.Errorf("read template %s: the server does not show its content", name)
	}
	return t, nil
}

// completeTemplateOrFile offers the templates of the server, and files.
func (a *app) completeTemplateOrFile(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	names, _ := a.completeTemplates(fullName)(cmd, args, toComplete)
	return names, cobra.ShellCompDirectiveDefault
}
