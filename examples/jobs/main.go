// Command jobs is a worker of jobs that change the program's own tables; README.md
// explains it to users of an executor of transactional jobs.
package main

import (
	"errors"
	"os"
	"time"

	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/workflow/template"
)

// templates: a job is a task of one step, and carries its retry delays.
var templates = []string{`
name: TRANSFER
namespace_name: bank
version: 1.0.0
steps: [{name: run, handler: {callable: TRANSFER}, retry: {max_attempts: 2, delays_seconds: [0.2]}}]
`, `
name: SEND_RECEIPT
namespace_name: bank
version: 1.0.0
steps: [{name: run, handler: {callable: SEND_RECEIPT}, retry: {max_attempts: 4, delays_seconds: [0.1, 0.2, 0.3]}}]
`}

// Transfer is the data of both jobs.
type Transfer struct {
	ID    string `json:"id"`
	From  string `json:"from"`
	To    string `json:"to"`
	Cents int64  `json:"cents"`
}

func register(w *worker.Worker) error {
	for _, source := range templates {
		t, _, err := template.Parse("jobs", []byte(source))
		if err := errors.Join(err, w.RegisterTemplate(t)); err != nil {
			return err
		}
	}
	return errors.Join(
		worker.HandleTx(w, "TRANSFER", transfer),
		worker.Handle(w, "SEND_RECEIPT", sendReceipt),
	)
}

// transfer changes both accounts. The changes, the end of this job and the next job are
// committed together.
func transfer(ctx *worker.StepContext, tx worker.Tx, t Transfer) (any, error) {
	if _, err := tx.Exec(ctx, `update accounts set cents = cents + $1 where owner = $2`, t.Cents, t.To); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `update accounts set cents = cents - $1 where owner = $2`, t.Cents, t.From); err != nil {
		return nil, err // no overdrafts: the other change is rolled back too
	}
	return worker.Continue("transferred", worker.NextTask{Name: "SEND_RECEIPT", StartIn: time.Second, IdempotencyKey: "receipt-" + t.ID})
}

// sendReceipt calls a mail service that answers at the third attempt.
func sendReceipt(ctx *worker.StepContext, t Transfer) (string, error) {
	if ctx.Attempt() < 3 {
		return "", errors.New("the mail service does not answer")
	}
	return "sent to " + t.From, nil
}

func main() { os.Exit(daemon.Main(daemon.WorkerProgram("jobs", register), os.Args[1:], os.Stderr)) }
