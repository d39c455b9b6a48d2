package limitrule

import (
	"slices"
	"strings"

	"github.com/tasker-go/tasker/internal/jsonscan"
)

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

// Of returns the key of a task with a valid context, as PostgreSQL finds it. It is not known if the
// path leads through an array, the value is spelled anew by PostgreSQL, or has more than maxKey bytes.
func (k *Key) Of(context []byte, tags []string) (key string, known bool) {
	switch {
	case k.KeyPath != nil:
		key, known = memberAt(context, k.KeyPath)
	case k.KeyTag != "":
		if i := slices.IndexFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, k.KeyTag) }); i >= 0 {
			key = tags[i][len(k.KeyTag):]
		}
		known = true
	}
	return key, known && len(key) <= maxKey
}

// memberAt returns the text of the last member that path names in an object, "" without one; of equal
// members the last one counts.
func memberAt(text []byte, path []string) (member string, known bool) {
	scan := jsonscan.New(text)
	if t, _ := scan.Next(); t.Kind != jsonscan.Object {
		return "", false
	}
	known = true
	depth, at := 1, 0 // open levels, and the member of path that is looked for at depth at+1
	for t, ok := scan.Next(); ok; t, ok = scan.Next() {
		if t.Kind == jsonscan.Key {
			if depth != at+1 || string(jsonscan.Text(text, t)) != path[at] {
				continue
			}
			t, _ = scan.Next()
			switch member, known = "", t.Kind != jsonscan.Array; {
			case at == len(path)-1:
				member, known = plain(text, t)
			case t.Kind == jsonscan.Object:
				at++
			}
		}
		switch t.Kind {
		case jsonscan.Array, jsonscan.Object:
			depth++
		case jsonscan.End:
			depth--
			at = min(at, max(depth-1, 0))
		}
	}
	return member, known && scan.Err() == nil
}

// plain returns the text of a value that PostgreSQL does not spell otherwise.
func plain(text []byte, t jsonscan.Token) (value string, known bool) {
	switch value = string(jsonscan.Text(text, t)); t.Kind {
	case jsonscan.String:
		return value, true
	case jsonscan.Literal:
		return strings.TrimPrefix(value, "null"), true
	case jsonscan.Integer:
		return value, value != "-0"
	default:
		return "", false
	}
}
