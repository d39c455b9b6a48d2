package workflow

// StoryRules are the limits that stories are played with.
var StoryRules = testRules
