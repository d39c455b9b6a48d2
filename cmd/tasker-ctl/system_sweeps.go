package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/client"
)

func newSystemSweepsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sweeps [COMMAND]",
		Short: "List the sweeps and their last runs, or run one",
		Long: `Lists the jobs that the orchestrators do by turns, such as looking for dead
workers, and what each did the last time.`,
		Args: refuseUnknown,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			list, err := c.Sweeps(cmd.Context())
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(list, func() {
				t := a.newTable("SWEEP", "RUNS", "LAST", "TOOK", "NEXT", "RESULT")
				for i := range list.Sweeps {
					s := &list.Sweeps[i]
					took := any(nil)
					switch {
					case s.Running:
						took = cell{"running", cyan}
					case s.FinishedAt != nil:
						took = seconds(s.FinishedAt.Sub(s.StartedAt.Time))
					}
					t.row(s.Name, s.Runs, instant(&s.StartedAt), took, instant(&s.NextAt), clip(shownJSON(s.Result), 100))
				}
				t.write(a.stdout)
			})
		},
	}
	cmd.AddCommand(newSystemSweepCommand(a))
	return cmd
}

func newSystemSweepCommand(a *app) *cobra.Command {
	var r client.SweepRequest
	cmd := &cobra.Command{
		Use:   "run SWEEP",
		Short: "Run a sweep now, whenever it is due",
		Args:  arguments("SWEEP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(orchestrator)
			if err != nil {
				return err
			}
			run, err := c.RunSweep(cmd.Context(), args[0], r)
			if err != nil {
				return unreachable(orchestrator, err)
			}
			return a.emit(run, func() { a.showSweep(run) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&r.DryRun, "dry-run", false, "only show what it would do")
	return cmd
}

func (a *app) showSweep(run *client.SweepRun) {
	if len(run.Findings) > 0 {
		t := a.newTable("SUBJECT", "ACTION", "DETAIL")
		for _, f := range run.Findings {
			t.row(f.Subject, f.Action, f.Detail)
		}
		t.write(a.stdout)
		a.printf("\n")
	}
	var items []string
	for _, action := range slices.Sorted(maps.Keys(run.Items)) {
		items = append(items, fmt.Sprintf("%s %d", oneLine(action), run.Items[action]))
	}
	if len(items) == 0 {
		items = []string{"nothing to do"}
	}
	dry := ""
	if run.DryRun {
		dry = ", nothing was done"
	}
	a.printf("%s: %s (%s in %dms%s)\n", oneLine(run.Sweep), strings.Join(items, ", "), run.Outcome, run.TookMS, dry)
}
