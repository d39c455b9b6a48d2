package rest

import (
	"net/http"
	"time"

	"github.com/tasker-go/tasker/internal/backpressure"
)

// Admission lets new tasks in or turns them away; *backpressure.Admission is
// one.
type Admission interface {
	// AdmitRequest is asked before the body of a creation is read.
	AdmitRequest() (r backpressure.Refusal, ok bool)
	// AdmitTask is asked for each task of a request that was let in.
	AdmitTask(namespace string) (r backpressure.Refusal, ok bool)
}

// admitRequest says why a creation is turned away before its body is read.
// Where nobody decides about that, the command channel does.
func (t *taskRoutes) admitRequest() error {
	if t.admission == nil {
		return nearlyFull(t.engine.Saturation())
	}
	if r, ok := t.admission.AdmitRequest(); !ok {
		return refusal(r)
	}
	return nil
}

// admitTask says why a task of the namespace is turned away.
func (t *taskRoutes) admitTask(namespace string) error {
	if t.admission == nil {
		return nil
	}
	if r, ok := t.admission.AdmitTask(namespace); !ok {
		return refusal(r)
	}
	return nil
}

func refusal(r backpressure.Refusal) *failure {
	f := &failure{status: http.StatusServiceUnavailable, code: codeBackpressure, message: r.Message(),
		retryAfter: max(r.RetryAfter, time.Second)}
	if r.Reason == backpressure.BreakerOpen {
		f.code = codeBreakerOpen
	}
	return f
}

// nearlyFull turns new tasks away while the command channel is nearly full.
func nearlyFull(saturation float64) error {
	retry := 15 * time.Second
	switch {
	case saturation < 0.90:
		return nil
	case saturation >= 0.95:
		retry = 30 * time.Second
	}
	return &failure{status: http.StatusServiceUnavailable, code: codeBackpressure, retryAfter: retry,
		message: "The command channel is nearly full"}
}
