package workflow

// Priority levels are priorities as other queues number them: 1 goes first, 10 last, 5 is
// the default.
const (
	MinPriorityLevel = 1
	MaxPriorityLevel = 10

	usualPriorityLevel = 5
	priorityPerLevel   = 20
)

// LevelOfPriority is the level of a priority: the one with the greatest priority that is not
// above it. 80 to 100 are level 1.
func LevelOfPriority(priority int) int {
	for level := MinPriorityLevel; level < MaxPriorityLevel; level++ {
		if priority >= PriorityOfLevel(level) {
			return level
		}
	}
	return MaxPriorityLevel
}

// PriorityOfLevel is the priority of a level: 1 is 80, 5 is 0, 10 is -100.
func PriorityOfLevel(level int) int { return (usualPriorityLevel - level) * priorityPerLevel }

// priority reads the template's default, as a priority or as a level; nil: none.
func (r *templateReader) priority(m *mapping) *int {
	number, given := m.integer("priority", bounds{MinPriority, MaxPriority, MinPriority, MaxPriority})
	level, levelled := m.integer("priority_level", bounds{MinPriorityLevel, MaxPriorityLevel, MinPriorityLevel, MaxPriorityLevel})
	p := int(number)
	switch {
	case given && levelled:
		r.errorf(m.position("priority_level"), CodeDuplicateKey, m.join("priority_level"), "priority and priority_level both say how urgent a task is; keep one of them")
		return nil
	case levelled:
		p = PriorityOfLevel(int(level))
	case !given:
		return nil
	}
	return &p
}
