package workflow

// QueueTemplate is the name of the template of a plain task queue, and the callable of its only
// step. A queue is a namespace with this template; its tasks are submitted, claimed and ended
// over /tasks/v1. The context of a task is a JSON object with its payload, and the tags of
// which a worker must have all.
const QueueTemplate = "taskmaster"

// OfQueue reports whether the template is that of a plain task queue.
func (t *Template) OfQueue() bool {
	return t.Name == QueueTemplate && len(t.Steps) == 1 && t.Steps[0].Handler.Callable == QueueTemplate
}
