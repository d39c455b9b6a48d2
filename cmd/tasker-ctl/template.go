package main

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

func newTemplateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "template",
		Aliases: []string{"templates"},
		Short:   "List and deprecate the templates of a server, check template files",
	}
	deprecate := a.templateMark("deprecate", "Keep a version from being chosen where a request names none", true, (*client.Client).DeprecateTemplate)
	deprecate.Long = `Keeps a version of a template from being chosen where a request names none: then
the highest version that is not deprecated is. Requests that name the version get it.`
	cmd.AddCommand(newTemplateListCommand(a), newTemplateInfoCommand(a), deprecate,
		a.templateMark("undeprecate", "Let a version be chosen again", false, (*client.Client).UndeprecateTemplate), newTemplateValidateCommand(a))
	return cmd
}

func newTemplateListCommand(a *app) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the current templates",
		Args:  arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.Templates(cmd.Context(), namespace)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() {
				t := a.newTable("NAMESPACE", "NAME", "VERSION", "STATE", "STEPS", "DESCRIPTION")
				for _, s := range list.Templates {
					state := cell{}
					if s.DeprecatedAt != nil {
						state = cell{"deprecated", yellow}
					}
					t.row(s.Namespace, s.Name, s.Version, state, s.StepCount, clip(text(s.Description), 60))
				}
				t.write(a.stdout)
			})
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only of this namespace")
	completeFlag(cmd, "namespace", a.completeNamespaces)
	return cmd
}

func newTemplateInfoCommand(a *app) *cobra.Command {
	var ref templateRef
	cmd := &cobra.Command{
		Use:   "info NAME",
		Short: "Show a template and its steps",
		Long: `Shows a template and its steps. NAME is the name of the template, or
NAMESPACE/NAME or NAMESPACE/NAME:VERSION. Without a namespace the server is
asked which one has the name, without a version which is current.`,
		Example: "  tasker-ctl template info payments/process_refund:1.2.0",
		Args:    arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			full, err := ref.parse(args[0]).find(cmd.Context(), c)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			detail, err := c.Template(cmd.Context(), full.namespace, full.name, full.version)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(detail, func() { a.showTemplate(detail) })
		},
		ValidArgsFunction: a.completeTemplateRefs,
	}
	cmd.Flags().StringVarP(&ref.namespace, "namespace", "n", "", "namespace of the template")
	cmd.Flags().StringVar(&ref.version, "version", "", "version of the template")
	return cmd
}

// templateMark is a command that changes whether a version is deprecated.
func (a *app) templateMark(name, short string, needReason bool,
	do func(c *client.Client, ctx context.Context, namespace, name, version string, why client.Why) (*client.TemplateDetail, error)) *cobra.Command {
	var ref templateRef
	var why whyFlags
	cmd := &cobra.Command{
		Use:   name + " NAME",
		Short: short,
		Args:  arguments("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			full, err := ref.parse(args[0]).find(cmd.Context(), c)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			detail, err := do(c, cmd.Context(), full.namespace, full.name, full.version, client.Why{Reason: why.reason, Actor: why.actor})
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(detail, func() { a.showRegistration(detail) })
		},
		ValidArgsFunction: a.completeTemplateRefs,
	}
	cmd.Flags().StringVarP(&ref.namespace, "namespace", "n", "", "namespace of the template")
	cmd.Flags().StringVar(&ref.version, "version", "", "version of the template")
	why.flags(cmd, "actor", needReason)
	return cmd
}

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
func (r templateRef) find(ctx context.Context, c *client.Client) (templateRef, error) {
	if r.namespace != "" && r.version != "" {
		return r, nil
	}
	list, err := c.Templates(ctx, r.namespace)
	if err != nil {
		return r, err
	}
	var found []client.TemplateSummary
	for _, t := range list.Templates {
		if t.Name == r.name && (r.namespace == "" || t.Namespace == r.namespace) && (r.version == "" || t.Version == r.version) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return r, hinted{&client.Error{Status: 404, Code: "NOT_FOUND", Message: "there is no template " + r.name}, "see tasker-ctl template list"}
	case 1:
		return templateRef{found[0].Namespace, found[0].Name, found[0].Version}, nil
	}
	var names []string
	for _, t := range found {
		names = append(names, t.Namespace+"/"+t.Name+":"+t.Version)
	}
	return r, usagef("the name %s is ambiguous: %s", r.name, strings.Join(names, ", "))
}

func (a *app) showTemplate(d *client.TemplateDetail) {
	a.showRegistration(d)
	if d.Description != nil && *d.Description != "" {
		a.printf("%s\n", oneLine(*d.Description))
	}
	a.printf("\n")
	parsed := parsedConfiguration(d)
	byName := map[string]workflow.StepTemplate{}
	if parsed != nil {
		for _, s := range parsed.Steps {
			byName[s.Name] = s
		}
	}
	t := a.newTable("STEP", "TYPE", "HANDLER", "AFTER", "ATTEMPTS")
	for _, s := range d.Steps {
		kind, handler, after := any(nil), any(nil), any(nil)
		if full, ok := byName[s.Name]; ok {
			kind, handler, after = full.Kind, full.Handler.Callable, strings.Join(full.Dependencies, ", ")
		}
		t.row(s.Name, kind, handler, after, s.DefaultMaxAttempts)
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
	by, use := r.RegisteredBy, "not used yet"
	if by == "" {
		by = "an unknown daemon"
	}
	if r.Used {
		use = "used by tasks"
	}
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

// text is a string that may be missing.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// completionTimeout bounds what completion asks a server: a shell that hangs
// is worse than one that does not know.
const completionTimeout = time.Second

// knownTemplates asks the server for its templates, for completion.
func (a *app) knownTemplates(ctx context.Context, namespace string) []client.TemplateSummary {
	e, err := a.endpoint(orchestrator)
	if err != nil {
		return nil
	}
	e.timeout, e.retries = completionTimeout, 0
	if ctx == nil {
		ctx = context.Background()
	}
	list, err := a.clientOf(e).Templates(ctx, namespace)
	if err != nil {
		return nil
	}
	return list.Templates
}
