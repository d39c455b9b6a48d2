package signal_test

import (
	"testing"

	"github.com/tasker-go/tasker/signal"
)

func TestTopics(t *testing.T) {
	if ns, ok := signal.WorkerTopic("payments").WorkerNamespace(); !ok || ns != "payments" {
		t.Errorf("WorkerNamespace = %q, %v", ns, ok)
	}
	if _, ok := signal.TopicTasks.WorkerNamespace(); ok {
		t.Error("TopicTasks is taken for a worker topic")
	}
	if !signal.ProbeTopic("x").IsProbe() || signal.WorkerTopic("x").IsProbe() {
		t.Error("IsProbe does not distinguish probes from other topics")
	}
}
