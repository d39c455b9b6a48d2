package workflow

// StoryRules are the limits that stories are played with.
var StoryRules = testRules

// Clone returns a copy that shares nothing.
func (g *Progress) Clone() *Progress {
	return &Progress{Steps: append([]StepProgress(nil), g.Steps...), Groups: append([]Group(nil), g.Groups...), Ending: g.Ending, Retry: g.Retry}
}
