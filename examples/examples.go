package examples

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/tasker-go/tasker/examples/approval"
	"github.com/tasker-go/tasker/examples/arithmetic"
	"github.com/tasker-go/tasker/examples/orders"
	"github.com/tasker-go/tasker/examples/primes"
	"github.com/tasker-go/tasker/examples/sequence"
	"github.com/tasker-go/tasker/examples/trip"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow"
	"github.com/tasker-go/tasker/workflow/template"
)

//go:embed */template.yaml
var files embed.FS

// Templates parses the templates of all examples.
func Templates() ([]*workflow.Template, error) {
	names, err := fs.Glob(files, "*/template.yaml")
	if err != nil {
		return nil, fmt.Errorf("list the example templates: %w", err)
	}
	var templates []*workflow.Template
	for _, name := range names {
		src, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		t, _, err := template.Parse("examples/"+name, src)
		if err != nil {
			return nil, err
		}
		templates = append(templates, t)
	}
	return templates, nil
}

// Register gives a worker the handlers and templates of all examples.
func Register(w *worker.Worker) error {
	for _, register := range []func(*worker.Worker) error{sequence.Register, arithmetic.Register, orders.Register, approval.Register, primes.Register, trip.Register} {
		if err := register(w); err != nil {
			return err
		}
	}
	templates, err := Templates()
	if err != nil {
		return err
	}
	for _, t := range templates {
		if err := w.RegisterTemplate(t); err != nil {
			return fmt.Errorf("register template %s: %w", t.Name, err)
		}
	}
	return nil
}
