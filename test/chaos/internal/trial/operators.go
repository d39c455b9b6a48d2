package trial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/operators"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/test/chaos/internal/rig"
	"github.com/tasker-go/tasker/workflow"
)

const (
	// operatorPause is how long an operator waits after an action, on average.
	operatorPause = 20 * time.Millisecond
	operatorCount = 16
	// operatorLeft is how many rows are described at most.
	operatorLeft = 100
)

// Operate runs a fleet without faults on which operators act at random, for Length, and
// reports whether all rules hold afterwards. The error says that the run could not be
// made.
func Operate(ctx context.Context, o Options, out io.Writer) (ok bool, err error) {
	if o.Orchestrators == nil {
		o.Orchestrators = []string{"Hybrid", "EventDrivenOnly", "PollingOnly"}
	}
	o = o.WithDefaults()
	r, err := rig.Start(ctx, rig.Options{Dir: o.Dir, BinDir: o.BinDir, Source: o.Source, Orchestrators: o.Orchestrators, Workers: o.Workers})
	if err != nil {
		return false, errors.Join(err, r.Close())
	}
	ok, err = operate(ctx, o, r, out)
	return ok, errors.Join(err, r.Close())
}

func operate(ctx context.Context, o Options, r *rig.Rig, out io.Writer) (ok bool, err error) {
	var clients []*client.Client
	for _, url := range r.Orchestrators() {
		clients = append(clients, client.New(client.Config{BaseURL: url, MaxRetries: -1}))
	}
	fmt.Fprintf(out, "%d operators act for %v on %d orchestrators, event source %s\n", operatorCount, o.Length, len(clients), o.Source)
	report, err := operators.Run(ctx, operators.Options{Seed: o.Seed, Length: o.Length, Clients: clients, Operators: operatorCount, Pause: operatorPause})
	if err != nil {
		return false, fmt.Errorf("let operators act: %w", err)
	}
	fmt.Fprintln(out, report)
	s, err := store.Open(ctx, store.Options{URL: r.DSN(), MaxConns: 2, ApplicationName: "chaos-check"})
	if err != nil {
		return false, err
	}
	defer s.Close()
	left, err := operators.Settle(ctx, operators.Settling{Client: clients[0], Store: s, Rules: workflow.Rules{MaxCrashes: rig.MaxCrashes},
		Patience: drainLimit, Rows: func(ctx context.Context) ([]string, error) { return rowsLeft(ctx, r) }})
	if err != nil {
		return false, fmt.Errorf("check what operators have left: %w", err)
	}
	fmt.Fprintln(out, left)
	for _, failure := range report.Failed {
		fmt.Fprintln(out, "failed:", failure)
	}
	for _, surprise := range r.Surprises() {
		fmt.Fprintln(out, "surprise:", surprise)
	}
	return left.OK() && len(report.Failed)+len(r.Surprises()) == 0, nil
}

// rowsLeft describes living tasks, and messages and dependencies that are there.
func rowsLeft(ctx context.Context, r *rig.Rig) (left []string, err error) {
	err = r.Do(ctx, func(db *pgx.Conn) error {
		rows, err := db.Query(ctx, `
			select concat_ws(' ', 'task', v.task_uuid, v.name, v.state) from tasker.board b join tasker.v_tasks v using (task_uuid) where b.slot = 0
			union all select concat_ws(' ', 'message', kind, 'about', task_uuid) from tasker.task_messages
			union all select concat_ws(' ', 'dependency of', task_uuid, 'on', depends_on) from tasker.task_dependencies limit $1`, operatorLeft)
		if err != nil {
			return err
		}
		left, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return left, err
}
