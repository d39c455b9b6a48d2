// Package settle lets a worker decide what follows from a success. A worker that holds
// the proof, which is the fence of the claim and, for a task with several live steps,
// the lock on its row, may run the rules ([workflow.Advance]), commit the effects and
// claim the steps that follow, without a report on the board and an orchestrator that
// applies it. Orchestrators remain the guarantee: they apply every report that was not
// settled. docs/inside/decisions/0024 has the reasons and the figures.
//
// Recorder, which counts and logs committed decisions, serves orchestrators too.
//
// What may not enter: what needs the configuration of orchestrators (retries, limits,
// dead letters), and listening for new work.
package settle
