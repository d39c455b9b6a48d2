// Package simulate replays the steps of one line under a policy, as the engine would have
// claimed them, and says how long they would have waited. It is arithmetic on a recording:
// the same jobs and the same line give the same outcome.
//
// What may not enter: statements (store), clocks, chance, files.
package simulate
