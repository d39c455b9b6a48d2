// Package settle decides where a step has succeeded. Whoever holds the proof, which
// is the fence of the claim and for a task with several steps in hand the lock on
// its row, may run the rules ([workflow.Advance]) and make the consequences true,
// with the claims of the steps that follow: a worker need not report over the board
// and wait until an orchestrator has found that. Orchestrators remain the guarantee:
// they apply whatever was reported and not settled. docs/decisions/0024 has the
// reasons and the figures.
//
// Recorder, which counts and tells of what was decided, serves orchestrators too.
//
// What needs the configuration of orchestrators does not belong here (retries,
// limits, dead letters), nor who listens for what has become ready.
package settle
