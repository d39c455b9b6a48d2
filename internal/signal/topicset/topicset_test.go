package topicset_test

import (
	"testing"

	"github.com/tasker-go/tasker/internal/signal/topicset"
	"github.com/tasker-go/tasker/signal"
)

func TestTopics(t *testing.T) {
	if ns, ok := topicset.WorkerNamespace(signal.WorkerTopic("payments")); !ok || ns != "payments" {
		t.Errorf("WorkerNamespace = %q, %v", ns, ok)
	}
	if _, ok := topicset.WorkerNamespace(signal.TopicTasks); ok {
		t.Error("TopicTasks is taken for a worker topic")
	}
	if !topicset.IsProbe(signal.ProbeTopic("x")) || topicset.IsProbe(signal.WorkerTopic("x")) {
		t.Error("IsProbe does not distinguish probes from other topics")
	}
}
