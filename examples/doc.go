// Package examples holds complete workflows to read, run and copy: a template,
// its handlers and a test each. cmd/worker runs these, so that a fresh
// installation has something to do.
//
//   - sequence: four steps in a line
//   - diamond, tree, mixeddag: forks and joins over one set of handlers
//   - orders: an order from validation to shipping, with typed inputs,
//     settings from the template, results of parents, retries and failures
//   - approval: a decision that creates the branches, and the join behind them
//   - trip: a saga, undone in reverse when a later step fails
//   - vacation: an approval, an event from outside and a workflow as a step, for
//     all of which no handler is needed
//   - primes: work split into batches, done side by side and added up
//
// Package cookbook has the recipes of docs/use/cookbook.md.
//
// Quick starts are programs of their own, each with a README for users of another system:
//
//   - restqueue: tasks and workers over REST, with curl and Python's standard library
//   - jobs: jobs that change the program's own tables, in one transaction with their end
//   - mail: types of tasks with a schema and defaults, enqueued over REST by key
//   - lanes: jobs of three priorities, refused duplicates, dead letters
//   - fulfillment: one workflow with the same handlers in Go, Python and TypeScript
package examples
