package config

import (
	_ "embed" // referenceIntro
	"fmt"
	"slices"
	"strings"
)

// referenceIntro stands before the keys on the reference page.
//
//go:embed reference.md
var referenceIntro string

// ReferenceMarkdown writes the reference page of every key.
func ReferenceMarkdown() []byte {
	var b strings.Builder
	b.WriteString(referenceIntro)
	keys := Keys()
	root := ""
	active := slices.DeleteFunc(slices.Clone(keys), func(k Key) bool { return k.Status != StatusActive })
	for _, table := range byTable(active) {
		if r, _, _ := strings.Cut(table.name, "."); r != root {
			root = r
			fmt.Fprintf(&b, "\n## %s\n", root)
		}
		fmt.Fprintf(&b, "\n### [%s]\n\n| key | type | default | allowed | what it is and does |\n|---|---|---|---|---|\n", table.name)
		for _, k := range table.keys {
			referenceRow(&b, k, k.name())
			for i := range active {
				if active[i].Member && strings.HasPrefix(active[i].Path, k.Path+"[].") {
					referenceRow(&b, &active[i], strings.TrimPrefix(active[i].Path, k.table()+"."))
				}
			}
		}
	}
	b.WriteString("\n## Keys without effect\n\nFiles that set them load, with one warning.\n\n| key | why |\n|---|---|\n")
	for i := range keys {
		if k := &keys[i]; !k.Older && k.Status != StatusActive {
			fmt.Fprintf(&b, "| `%s` | %s |\n", k.Path, strings.ReplaceAll(k.statusText(), "|", `\|`))
		}
	}
	b.WriteString("\n## Older spellings\n\nAccepted with a warning.\n\n| key | used for |\n|---|---|\n")
	for i := range keys {
		if k := &keys[i]; k.Older {
			used := "nothing"
			if len(k.Sets) > 0 {
				used = "`" + strings.Join(k.Sets, "`, `") + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", k.Path, used)
		}
	}
	return []byte(b.String())
}

func referenceRow(b *strings.Builder, k *Key, name string) {
	def := ""
	if text := literal(k.Default); text != "" {
		def = "`" + text + "`"
	}
	var marks []string
	if k.Secret {
		marks = append(marks, "**secret**")
	}
	if k.Reloadable {
		marks = append(marks, "**reload**")
	}
	if len(k.Env) > 0 {
		marks = append(marks, "`$"+strings.Join(k.Env, "`, `$")+"`")
	}
	about := strings.Join(append([]string{k.Description, k.Impact}, marks...), " ")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", name, k.Type, cell.Replace(def), cell.Replace(k.Rule), cell.Replace(about))
}
