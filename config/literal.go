package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// literal writes a value as TOML does.
func literal(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return quote(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return strconv.FormatBool(v)
	case float64:
		s := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(s, ".eEnN") {
			s += ".0"
		}
		return s
	case []string, []int64, []any:
		list := reflect.ValueOf(v)
		parts := make([]string, list.Len())
		for i := range parts {
			parts[i] = literal(list.Index(i).Interface())
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []map[string]any: // only that of a default is written, which has none
		return "[]"
	default:
		return fmt.Sprint(v)
	}
}

// quote writes a basic string; its escapes are those TOML knows.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// typeName names the type of a decoded value for messages.
func typeName(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case int64:
		return "integer"
	case float64:
		return "float"
	case bool:
		return "boolean"
	case map[string]any:
		return "table"
	case []any, []map[string]any, []string, []int64:
		return "list"
	default:
		return "date"
	}
}
