package limitrule

// Key says where limits find the key of a task, or of its steps: the text at KeyPath in its
// context, or the text after KeyTag in one of its tags. The key of a task without either text is
// empty, and so are all keys where neither is set.
type Key struct {
	KeyPath []string `json:"key_path,omitempty" doc:"Where the key stands in the context of the task, member by member" maxItems:"16"`
	KeyTag  string   `json:"key_tag,omitempty" doc:"The key is what follows this in a tag of the task, such as tenant:" maxLength:"64"`
}

// Check calls problem for everything that is wrong with a key.
func (k *Key) Check(problem func(format string, args ...any)) {
	if k.KeyPath != nil && k.KeyTag != "" {
		problem("want key_path or key_tag, not both")
	}
	if len(k.KeyPath) > maxPath {
		problem("key_path may have at most %d members", maxPath)
	}
	for _, member := range k.KeyPath {
		if member == "" || !isText(member, 255) {
			problem("a member of key_path must have 1 to 255 characters, and no zero byte")
		}
	}
	if !isText(k.KeyTag, 64) {
		problem("key_tag may have at most 64 characters, and no zero byte")
	}
}
