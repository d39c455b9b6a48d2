package rest

import (
	"net/http"
	"time"

	"github.com/tasker-go/tasker/internal/backpressure"
)

// Admission admits or rejects new tasks; *backpressure.Admission implements it.
type Admission interface {
	// AdmitRequest is called before the body of a creation is read.
	AdmitRequest() (r backpressure.Refusal, ok bool)
	// AdmitTask is called for each task of an admitted request.
	AdmitTask(namespace string) (r backpressure.Refusal, ok bool)
}

// admitRequest returns why a creation is rejected before its body is read. Without an
// Admission the command channel decides.
func (t *taskRoutes) admitRequest() error {
	if t.admission == nil {
		return nearlyFull(t.engine.Saturation())
	}
	return refusal(t.admission.AdmitRequest())
}

// admitTask returns why a task of the namespace is rejected.
func (t *taskRoutes) admitTask(namespace string) error {
	if t.admission == nil {
		return nil
	}
	return refusal(t.admission.AdmitTask(namespace))
}

func refusal(r backpressure.Refusal, ok bool) error {
	if ok {
		return nil
	}
	f := &failure{status: http.StatusServiceUnavailable, code: codeBackpressure, message: r.Message(),
		retryAfter: max(r.RetryAfter, time.Second)}
	if r.Reason == backpressure.BreakerOpen {
		f.code = codeBreakerOpen
	}
	return f
}

// nearlyFull rejects new tasks while the command channel is nearly full.
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
