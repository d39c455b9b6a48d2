// Command mail is a worker of task types that are registered over REST; README.md explains
// it to users of a queue with a registry of types.
package main

import (
	"errors"
	"os"
	"strings"

	"github.com/tasker-go/tasker/daemon"
	"github.com/tasker-go/tasker/worker"
)

// Mail is the payload; the schema of the type has been checked.
type Mail struct {
	To   string `json:"to"`
	Subj string `json:"subj"`
}

// Sent is the result.
type Sent struct {
	MessageID string `json:"message_id"`
}

// send hands a mail over. The server of busy.example answers at the third attempt.
func send(ctx *worker.StepContext, m Mail) (Sent, error) {
	if strings.HasSuffix(m.To, "@busy.example") && ctx.Attempt() < 3 {
		return Sent{}, errors.New("the mail server is busy")
	}
	return Sent{MessageID: m.To + "/" + m.Subj}, nil
}

func register(w *worker.Worker) error { return worker.Handle(w, "email.send", send) }

func main() { os.Exit(daemon.Main(daemon.WorkerProgram("mail", register), os.Args[1:], os.Stderr)) }
