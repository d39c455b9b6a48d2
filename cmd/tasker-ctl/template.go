package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/wording"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

func (a *app) template() command {
	var namespace string
	show := listing(a, templateFacts)
	deprecate := command{use: "deprecate NAME", short: "Keep a version from being chosen where a request names none",
		long: `Keeps a version of a template from being chosen where a request names none: then
the highest version that is not deprecated is. Requests that name the version get it.`}
	undeprecate := command{use: "undeprecate NAME", short: "Let a version be chosen again"}
	return command{
		use: "template", aliases: []string{"templates"}, short: "List and deprecate the templates of a server, check and draw template files",
		commands: []command{
			{use: "list", lists: true, short: "List the current templates", flags: a.namespace(&namespace, "only of this namespace"),
				run: ask(a, with((*api).Templates, &namespace), func(l *client.TemplateList) { show(l.Templates) })},
			a.templateInfo(),
			a.templateChange(deprecate, (*api).DeprecateTemplate, needed),
			a.templateChange(undeprecate, (*api).UndeprecateTemplate),
			a.templateRegister(), a.templateValidate(), a.templateVisualize(),
			{use: "generate", short: "Not here: templates of code are no plugins",
				instead: "tasker-ctl generate writes types, handlers and scaffolds"},
		},
	}
}

func templateFacts(s *client.TemplateSummary) facts {
	state := ""
	if s.DeprecatedAt != nil {
		state = "deprecated"
	}
	return facts{{"NAMESPACE", s.Namespace}, {"NAME", s.Name}, {"VERSION", s.Version},
		{"STATE", stateCell(state)}, {"STEPS", s.StepCount},
		{"DESCRIPTION", wording.Clip(valueOf(s.Description), 60)}}
}

// templateCommand is a command about one version of a template, which is found
// by what the argument and the flags say.
func (a *app) templateCommand(d command, show func(*client.TemplateDetail),
	do func(ctx context.Context, c *api, found templateRef) (*client.TemplateDetail, error)) command {
	var ref templateRef
	d.flags = append(all(
		a.namespace(&ref.namespace, "namespace of the template"),
		opt(&ref.version, "version", "version of the template"),
	), d.flags...)
	d.completes = a.completeTemplates(fullName)
	d.run = ask(a, func(ctx context.Context, c *api, args []string) (*client.TemplateDetail, error) {
		found, err := ref.parse(args[0]).find(ctx, c)
		if err != nil {
			return nil, err
		}
		return do(ctx, c, found)
	}, show)
	return d
}

func (a *app) templateInfo() command {
	return a.templateCommand(command{
		use: "info NAME", short: "Show a template and its steps",
		long: `Shows a template and its steps. NAME is the name of the template, or
NAMESPACE/NAME or NAMESPACE/NAME:VERSION. What is left out is found by the name;
where several have it, they are listed, and one must be named.`,
		example: "  tasker-ctl template info payments/process_refund:1.2.0",
	}, a.showTemplate, func(ctx context.Context, c *api, r templateRef) (*client.TemplateDetail, error) {
		return c.Template(ctx, r.namespace, r.name, r.version)
	})
}

// templateChange is a command that changes whether a version is deprecated; the
// rules are for the reason.
func (a *app) templateChange(d command,
	change func(c *api, ctx context.Context, namespace, name, version string, w client.Why) (*client.TemplateDetail, error),
	rules ...rule) command {
	var w client.Why
	d.flags = why(&w.Reason, &w.Actor, rules...)
	return a.templateCommand(d, a.showRegistration, func(ctx context.Context, c *api, r templateRef) (*client.TemplateDetail, error) {
		return change(c, ctx, r.namespace, r.name, r.version, w)
	})
}

func fullName(t *client.TemplateSummary) string { return t.Namespace + "/" + t.Name + ":" + t.Version }

// templateRef names a template; the namespace and the version may be open.
type templateRef struct{ namespace, name, version string }

// parse reads NAME, NAMESPACE/NAME or NAMESPACE/NAME:VERSION over what the
// flags say.
func (r templateRef) parse(s string) templateRef {
	if namespace, rest, ok := strings.Cut(s, "/"); ok {
		r.namespace, s = namespace, rest
	}
	if name, version, ok := strings.Cut(s, ":"); ok {
		s, r.version = name, version
	}
	r.name = s
	return r
}

// find closes what is open by asking the server.
func (r templateRef) find(ctx context.Context, c *api) (templateRef, error) {
	if r.namespace != "" && r.version != "" {
		return r, nil
	}
	list, err := c.Templates(ctx, r.namespace)
	if err != nil {
		return r, err
	}
	found := slices.DeleteFunc(list.Templates, func(t client.TemplateSummary) bool {
		return t.Name != r.name || r.namespace != "" && t.Namespace != r.namespace || r.version != "" && t.Version != r.version
	})
	switch len(found) {
	case 0:
		return r, hinted{&client.Error{Status: 404, Code: "NOT_FOUND", Message: "there is no template " + r.name}, "see tasker-ctl template list"}
	case 1:
		return templateRef{found[0].Namespace, found[0].Name, found[0].Version}, nil
	}
	return r, usagef("the name %s is ambiguous: %s", r.name, strings.Join(namesOf(found, fullName), ", "))
}

func (a *app) showTemplate(d *client.TemplateDetail) {
	a.showRegistration(d)
	if d.Description != nil && *d.Description != "" {
		a.printf("%s\n", oneLine(*d.Description))
	}
	a.printf("\n")
	byName := map[string]workflow.StepTemplate{}
	if parsed := parsedConfiguration(d); parsed != nil {
		for _, s := range parsed.Steps {
			byName[s.Name] = s
		}
	}
	t := a.newTable("STEP", "TYPE", "HANDLER", "AFTER", "ATTEMPTS")
	for _, s := range d.Steps {
		full, known := byName[s.Name]
		kind := ""
		if known {
			kind = full.Kind.String()
		}
		t.row(s.Name, kind, full.Handler.Callable, strings.Join(full.Dependencies, ", "), s.DefaultMaxAttempts)
	}
	t.write(a.stdout)
}

// showRegistration names a version, and tells whose content it has.
func (a *app) showRegistration(d *client.TemplateDetail) {
	a.printf("%s/%s:%s\n", d.Namespace, d.Name, d.Version)
	r := d.Registration
	if r == nil {
		return
	}
	use := "not used yet"
	if r.Used {
		use = "used by tasks"
	}
	by := cmp.Or(r.RegisteredBy, "an unknown daemon")
	a.printf("content %s, %s\nregistered by %s at %s\n", r.ContentHash, use, oneLine(by), instant(&r.RegisteredAt))
	if r.DeprecatedAt != nil {
		a.printf("deprecated since %s\n", instant(r.DeprecatedAt))
	}
}

// parsedConfiguration reads the whole template where the server gives it, nil
// otherwise.
func parsedConfiguration(d *client.TemplateDetail) *workflow.Template {
	var t workflow.Template
	if len(d.Configuration) == 0 || string(d.Configuration) == "null" || json.Unmarshal(d.Configuration, &t) != nil {
		return nil
	}
	return &t
}

func (a *app) templateRegister() command {
	var s client.TemplateSource
	return command{
		use: "register FILE…", short: "Register template files with the server",
		long: `Registers template files with the server, each as the current content of its
version. It is repeated safely; a version that tasks have used with other content
is a conflict. Workers need a handler for the steps, and no restart.`,
		example: "  tasker-ctl template register order.yaml refund.yaml",
		flags:   why(&s.Reason, &s.Actor),
		run: func(ctx context.Context, c *api, files []string) error {
			for _, file := range files {
				value := "@" + file
				if file == "-" {
					value = file
				}
				text, err := a.readInput(value, maxTemplateInput)
				if err != nil {
					return err
				}
				s.Source = string(text)
				d, err := c.RegisterTemplate(ctx, s)
				if err != nil {
					return fmt.Errorf("register %s: %w", file, err)
				}
				if err := a.emit(d, func() { a.showRegistration(d) }); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// maxTemplateInput bounds a template that is sent, or read from stdin.
const maxTemplateInput = 4 << 20

// templateReport is the answer of `template validate`.
type templateReport struct {
	OK        bool              `json:"ok"`
	Templates []templateFinding `json:"templates"` // those that can be used
	Problems  template.Problems `json:"problems"`
}

type templateFinding struct {
	File      string `json:"file"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Steps     int    `json:"steps"`
}

func (a *app) templateValidate() command {
	var strict bool
	return command{
		use: "validate PATH…", short: "Check template files, without a server",
		long: `Checks template files. A PATH is a file, a folder, a pattern such as
'config/tasks/**/*.{yml,yaml}', or - for stdin. Problems are listed as
file:line:column: severity: message [CODE]; the exit code is 1 when there are
errors, with --strict also when there are warnings.`,
		example: "  tasker-ctl template validate config/tasks\n  tasker-ctl -o json template validate --strict order.yaml",
		flags:   opt(&strict, "strict", "treat warnings as errors"),
		local: func(_ context.Context, paths []string) error {
			report, err := a.checkTemplates(paths)
			if err != nil {
				return err
			}
			failed, warned := len(report.Problems.Errors()), len(report.Problems.Warnings())
			report.OK = failed == 0 && (!strict || warned == 0)
			return a.verdict(report, report.OK, "", func() {
				for _, p := range report.Problems {
					a.printf("%s\n", p)
				}
				usable := counted(len(report.Templates), "usable template")
				a.printf("%s, %s, %s\n", usable, counted(failed, "error"), counted(warned, "warning"))
			})
		},
	}
}

func (a *app) checkTemplates(paths []string) (templateReport, error) {
	report := templateReport{Templates: []templateFinding{}, Problems: template.Problems{}}
	var files []string
	for _, path := range paths {
		if path != "-" {
			files = append(files, path)
			continue
		}
		src, err := a.readInput(path, maxTemplateInput)
		if err != nil {
			return report, err
		}
		t, problems, _ := template.Parse("stdin", src) // the error repeats the problems
		report.Problems = append(report.Problems, problems...)
		if t != nil {
			report.add(template.Loaded{File: "stdin", Template: t})
		}
	}
	if len(files) == 0 {
		return report, nil
	}
	loaded, problems, err := template.Load(files...)
	if err != nil && !isA[*template.Error](err) {
		return report, err
	}
	report.Problems = append(report.Problems, problems...)
	for _, t := range loaded {
		report.add(t)
	}
	return report, nil
}

// add compiles a template: what cannot be compiled cannot be used either.
func (r *templateReport) add(t template.Loaded) {
	if _, err := workflow.Compile(t.Template); err != nil {
		r.Problems = append(r.Problems, template.Problem{
			File: t.File, Severity: template.SeverityError, Code: "COMPILE", Message: err.Error(),
		})
		return
	}
	r.Templates = append(r.Templates, templateFinding{
		File: t.File, Namespace: t.Template.Namespace, Name: t.Template.Name, Version: t.Template.Version, Steps: len(t.Template.Steps),
	})
}
