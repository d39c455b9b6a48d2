package admission

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Key says where limits find the key of a task: the text at KeyPath in its context, or what
// follows KeyTag in one of its tags. That of a task without it, and of all with neither, is
// empty.
type Key struct {
	KeyPath []string `json:"key_path,omitempty" doc:"Where the key stands in the context of the task, member by member" maxItems:"16"`
	KeyTag  string   `json:"key_tag,omitempty" doc:"The key is what follows this in a tag of the task, such as tenant:" maxLength:"64"`
}

// Check returns what is wrong with the key; rule is what stands before its names.
func (k *Key) Check(rule string) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	text := func(name, value string, most int) {
		if utf8.RuneCountInString(value) > most {
			add("%s%s must have at most %d characters", rule, name, most)
		}
		if !utf8.ValidString(value) || strings.ContainsAny(value, "\x00\x1f") {
			add("%s%s must be text without the control characters NUL and US", rule, name)
		}
	}
	if k.KeyPath != nil && k.KeyTag != "" {
		add("want %skey_path or %[1]skey_tag, not both", rule)
	}
	if len(k.KeyPath) > 16 {
		add("%skey_path may have at most 16 members", rule)
	}
	for _, member := range k.KeyPath {
		if strings.TrimSpace(member) == "" {
			add("%skey_path must not be empty", rule)
		}
		text("key_path", member, 255)
	}
	text("key_tag", k.KeyTag, 64)
	return problems
}
