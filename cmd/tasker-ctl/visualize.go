package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

// chart is a picture of steps for Mermaid.
type chart struct {
	Title string      `json:"title,omitempty"`
	Nodes []chartNode `json:"nodes"`
	Edges []chartEdge `json:"edges"`
}

type chartNode struct {
	Name        string   `json:"name"`
	Type        string   `json:"type"`
	State       string   `json:"state,omitempty"`
	Attempts    int      `json:"attempts,omitempty"`
	MaxAttempts int      `json:"max_attempts,omitempty"`
	Handler     string   `json:"handler,omitempty"`
	URL         string   `json:"url,omitempty"`
	After       []string `json:"after"`
	notes       []string
}

// chartEdge is dotted where the step at its end may never be created.
type chartEdge struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Dotted bool   `json:"dotted"`
}

// newChart draws the nodes of a task, or of its template alone.
func newChart(title string, t *workflow.Template, nodes []node) chart {
	c := chart{Title: title, Nodes: []chartNode{}, Edges: []chartEdge{}}
	for _, n := range nodes {
		s := stepBehind(t, n.name)
		c.Nodes = append(c.Nodes, chartNode{Name: n.name, Type: s.Kind.String(), Attempts: n.attempts, MaxAttempts: n.maximum,
			Handler: s.Handler.Callable, After: append([]string{}, n.parents...)})
		for _, p := range n.parents {
			from := stepBehind(t, p).Kind
			dotted := from == workflow.KindDecision || from == workflow.KindBatchable || s.Kind == workflow.KindDeferredConvergence
			c.Edges = append(c.Edges, chartEdge{p, n.name, dotted})
		}
		if s.Compensation != "" {
			c.Edges = append(c.Edges, chartEdge{n.name, s.Compensation, true})
		}
	}
	return c
}

// stepBehind is the step of a template that a step was made of.
func stepBehind(t *workflow.Template, name string) workflow.StepTemplate {
	found := workflow.StepTemplate{Kind: workflow.KindStandard}
	if t == nil {
		return found
	}
	for _, s := range t.Steps {
		if s.Name == name {
			return s
		}
		if s.Kind == workflow.KindBatchWorker && strings.HasPrefix(name, s.Name+"_") && len(s.Name) > len(found.Name) {
			found = s
		}
	}
	return found
}

// forms are what Mermaid draws a type of step with; a plain box for others.
var forms = map[string][2]string{
	"decision": {"{", "}"}, "deferred_convergence": {"([", "])"}, "batchable": {"[[", "]]"}, "batch_worker": {"[/", "/]"},
	"compensation": {"[\\", "\\]"}, "sleep": {"(", ")"}, "wait_for_event": {">", "]"}, "approval": {"{{", "}}"}, "task": {"[(", ")]"},
}

// fills are the colours of nodes, for those of states on a screen.
var fills = map[style]string{green: "#c8e6c9", red: "#ffcdd2", yellow: "#fff9c4", cyan: "#b3e5fc", dim: "#eeeeee"}

// label keeps a text inside the quotes of a label: as Mermaid's codes for characters.
func label(text string) string {
	return strings.NewReplacer("#", "#35;", `"`, "#quot;", "<", "#lt;", ">", "#gt;", "&", "#amp;", "`", "#96;", "\\", "#92;").Replace(oneLine(text))
}

func (c chart) mermaid() string {
	var b strings.Builder
	if c.Title != "" {
		fmt.Fprintf(&b, "---\ntitle: %s\n---\n", quoted(c.Title))
	}
	b.WriteString("flowchart TD\n")
	id, states := map[string]int{}, []string{}
	for i, n := range c.Nodes {
		id[n.Name] = i
		form, class := cmp.Or(forms[n.Type], [2]string{"[", "]"}), ""
		if n.State != "" {
			class = ":::" + n.State
			states = append(states, n.State)
		}
		lines := []string{label(n.Name)}
		for _, note := range n.notes {
			lines = append(lines, label(note))
		}
		fmt.Fprintf(&b, "  n%d%s\"%s\"%s%s\n", i, form[0], strings.Join(lines, "<br/>"), form[1], class)
	}
	for _, e := range c.Edges {
		from, known := id[e.From]
		to, alsoKnown := id[e.To]
		if known && alsoKnown {
			fmt.Fprintf(&b, "  n%d %s n%d\n", from, map[bool]string{true: "-.->", false: "-->"}[e.Dotted], to)
		}
	}
	for i, n := range c.Nodes {
		if n.URL != "" {
			fmt.Fprintf(&b, "  click n%d href \"%s\"\n", i, strings.ReplaceAll(n.URL, `"`, "%22"))
		}
	}
	slices.Sort(states)
	for _, s := range slices.Compact(states) {
		fmt.Fprintf(&b, "  classDef %s fill:%s,stroke:#616161\n", s, cmp.Or(fills[stateStyle(s)], "#ffffff"))
	}
	return b.String()
}

// markdown is the picture and, with a title, a table of its steps.
func (c chart) markdown() string {
	title := c.Title
	c.Title = ""
	text := "```mermaid\n" + c.mermaid() + "```\n"
	if title == "" {
		return text
	}
	escape := strings.NewReplacer("|", "\\|", "[", "\\[", "<", "&lt;")
	text = "# " + oneLine(title) + "\n\n" + text + "\n| step | type | handler | after | state |\n|---|---|---|---|---|\n"
	for _, n := range c.Nodes {
		state := fmt.Sprintf("up to %s", counted(n.MaxAttempts, "attempt"))
		if n.State != "" {
			state = n.State + ", attempt " + share(n.Attempts, n.MaxAttempts)
		}
		name := escape.Replace(oneLine(n.Name))
		if n.URL != "" {
			name = "[" + name + "](" + n.URL + ")"
		}
		text += fmt.Sprintf("| %s | %s | %s | %s | %s |\n", name, n.Type,
			escape.Replace(oneLine(n.Handler)), escape.Replace(oneLine(strings.Join(n.After, ", "))), state)
	}
	return text
}

func (a *app) templateVisualize() command {
	var file string
	var annotated, graph bool
	return command{
		use: "visualize TEMPLATE", short: "Draw the steps of a template as a Mermaid flowchart",
		long: `Draws the steps of a template: a Markdown page with a Mermaid flowchart and a table.
TEMPLATE is a file, - for stdin, or the name of a template on the server. A dotted
edge leads to what a decision or a batch may not bring into being, to a join of
those that exist, and to a compensation.`,
		example:   "  tasker-ctl template visualize order.yaml --graph-only -o order.mmd",
		completes: a.completeTemplateOrFile,
		flags: all(opt(&annotated, "annotations", "name handlers, attempts and time limits in the picture", also("a")),
			opt(&file, "output,o", "`file` to write (default stdout)"), opt(&graph, "graph-only", "only the flowchart")),
		local: func(ctx context.Context, args []string) error {
			t, err := a.templateAt(ctx, args[0])
			if err != nil {
				return err
			}
			c := newChart(t.Namespace+"/"+t.Name+":"+t.Version, t, drawGraph(t, nil))
			for i := range c.Nodes {
				if s := stepBehind(t, c.Nodes[i].Name); annotated {
					c.Nodes[i].notes = annotations(&s)
				}
			}
			if graph {
				c.Title = ""
				return a.writeDocument(file, []byte(c.mermaid()))
			}
			return a.writeDocument(file, []byte(c.markdown()))
		},
	}
}

func annotations(s *workflow.StepTemplate) (notes []string) {
	if s.Handler.Callable != "" {
		notes = append(notes, s.Handler.Callable+suffixed(".", s.Handler.Method), counted(s.Retry.MaxAttempts, "attempt"))
	}
	if s.TimeoutSeconds > 0 {
		notes = append(notes, fmt.Sprintf("at most %ds", s.TimeoutSeconds))
	}
	return notes
}

func (a *app) taskVisualize() command {
	var file, base string
	var graph bool
	format := "mermaid"
	return command{
		use: "visualize TASK", short: "Draw the steps of a task and their states as a Mermaid flowchart",
		long: `Draws the steps of a task in the colours of their states: as a Mermaid flowchart, as
a Markdown page with it and a table, or as JSON with nodes and edges. Steps that a
decision or a batch has not brought into being are not_created.`,
		flags: all(opt(&format, "format,f", "mermaid, markdown or json", among("mermaid", "markdown", "json")),
			opt(&base, "base-url", "`URL` of an orchestrator, to which the steps link"),
			opt(&file, "output,o", "`file` to write (default stdout)"), opt(&graph, "graph-only", "without title and table")),
		run: func(ctx context.Context, c *api, args []string) error {
			task, err := c.Task(ctx, args[0], 0)
			if err != nil {
				return err
			}
			w := watched{app: a, client: c, task: task}
			w.readTemplate(ctx)
			drawn := taskChart(task, w, strings.TrimRight(base, "/"))
			if graph {
				drawn.Title = ""
			}
			text := drawn.mermaid()
			switch format {
			case "markdown":
				text = drawn.markdown()
			case "json":
				document, err := marshal(drawn, "  ")
				if err != nil {
					return fmt.Errorf("write the picture: %w", err)
				}
				text = string(document)
			}
			return a.writeDocument(file, []byte(text))
		},
	}
}

func taskChart(task *client.Task, w watched, base string) chart {
	nodes := w.picture().nodes
	c := newChart(fmt.Sprintf("%s %s: %s", templateName(task), task.TaskUUID, task.Status), w.template, nodes)
	for i, n := range nodes {
		c.Nodes[i].State = n.state
		if n.step != nil && base != "" {
			c.Nodes[i].URL = base + "/v1/tasks/" + task.TaskUUID + "/workflow_steps/" + n.step.WorkflowStepUUID
		}
	}
	return c
}
