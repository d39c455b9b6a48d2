package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/workflow"
)

// maxTemplateInput bounds a template read from stdin.
const maxTemplateInput = 4 << 20

// templateReport is the answer of `template validate`.
type templateReport struct {
	OK        bool              `json:"ok"`
	Templates []templateFinding `json:"templates"` // those that can be used
	Problems  workflow.Problems `json:"problems"`
}

type templateFinding struct {
	File      string `json:"file"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Steps     int    `json:"steps"`
}

func newTemplateValidateCommand(a *app) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "validate PATH…",
		Short: "Check template files, without a server",
		Long: `Checks template files. A PATH is a file, a folder, a pattern such as
'config/tasks/**/*.{yml,yaml}', or - for stdin. Problems are listed as
file:line:column: severity: message [CODE]; the exit code is 1 when there are
errors, with --strict also when there are warnings.`,
		Example: "  tasker-ctl template validate config/tasks\n  tasker-ctl -o json template validate --strict order.yaml",
		Args:    arguments("PATH…"),
		RunE: func(_ *cobra.Command, args []string) error {
			report, err := a.checkTemplates(args)
			if err != nil {
				return err
			}
			errorCount, warnings := len(report.Problems.Errors()), len(report.Problems.Warnings())
			report.OK = errorCount == 0 && (!strict || warnings == 0)
			if err := a.emit(report, func() {
				for _, p := range report.Problems {
					a.printf("%s\n", p)
				}
				a.printf("%s, %s, %s\n", counted(len(report.Templates), "usable template"), counted(errorCount, "error"), counted(warnings, "warning"))
			}); err != nil {
				return err
			}
			if !report.OK {
				return failure("")
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "treat warnings as errors")
	return cmd
}

func (a *app) checkTemplates(paths []string) (templateReport, error) {
	report := templateReport{Templates: []templateFinding{}, Problems: workflow.Problems{}}
	var files []string
	for _, path := range paths {
		if path != "-" {
			files = append(files, path)
			continue
		}
		src, err := io.ReadAll(io.LimitReader(a.stdin, maxTemplateInput))
		if err != nil {
			return report, err
		}
		t, problems, _ := workflow.ParseTemplate("stdin", src) // the error repeats the problems
		report.Problems = append(report.Problems, problems...)
		if t != nil {
			report.add(workflow.LoadedTemplate{File: "stdin", Template: t})
		}
	}
	if len(files) == 0 {
		return report, nil
	}
	loaded, problems, err := workflow.LoadTemplates(files...)
	var invalid *workflow.TemplateError
	if err != nil && !errors.As(err, &invalid) {
		return report, err
	}
	report.Problems = append(report.Problems, problems...)
	for _, t := range loaded {
		report.add(t)
	}
	return report, nil
}

// add compiles a template: what cannot be compiled cannot be used either.
func (r *templateReport) add(t workflow.LoadedTemplate) {
	if _, err := workflow.Compile(t.Template); err != nil {
		r.Problems = append(r.Problems, workflow.Problem{
			File: t.File, Severity: workflow.SeverityError, Code: "COMPILE", Message: err.Error(),
		})
		return
	}
	r.Templates = append(r.Templates, templateFinding{
		File: t.File, Namespace: t.Template.Namespace, Name: t.Template.Name, Version: t.Template.Version, Steps: len(t.Template.Steps),
	})
}
