// Package priorities has the priorities of tasks, and the levels that other queues number them by.
//
// What may not enter: the order of what waits, which is the board's.
package priorities

// The priorities of a task; higher runs first, 0 is the default.
const (
	Min = -100
	Max = 100
)

// Priority levels are priorities as other queues number them: 1 goes first, 10 last, 5 is
// the default.
const (
	MinLevel = 1
	MaxLevel = 10

	usualLevel = 5
	perLevel   = 20
)

// LevelOf is the level of a priority: the one with the greatest priority that is not
// above it. 80 to 100 are level 1.
func LevelOf(priority int) int {
	for level := MinLevel; level < MaxLevel; level++ {
		if priority >= OfLevel(level) {
			return level
		}
	}
	return MaxLevel
}

// OfLevel is the priority of a level: 1 is 80, 5 is 0, 10 is -100.
func OfLevel(level int) int { return (usualLevel - level) * perLevel }
