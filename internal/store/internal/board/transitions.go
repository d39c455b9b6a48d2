package board

// Transitions are recorded by the statements that write the ledger, row by row and only
// while clients follow them. Otherwise a statement looks at one number: a part of the
// statement that writes them would be prepared for each execution, though it never runs.

// recording is a condition that holds, and that records what a row of the ledger means for
// clients that follow its task: the arguments of tasker.record_transition. The row must
// be inserted, so it comes last.
func recording(transition string) string {
	return `case when {followed} then tasker.record_transition(` + transition + `) else true end`
}
