package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

const referenceIntro = `# Configuration reference

<!-- Generated from the table of keys in package config. Do not edit. -->

Configuration is TOML. A daemon starts without any file; what it reads, each
layer over the one before:

1. the defaults of this page;
2. the overlay of the environment (` + "`TASKER_ENV`" + `: development, test, production), unless a
   configuration root brings its own or a single file is used;
3. ` + "`base/{common,orchestration,worker}.toml`" + ` of the root (` + "`TASKER_CONFIG_ROOT`" + `);
4. ` + "`environments/<environment>/{common,orchestration,worker}.toml`" + ` of the root;
5. instead of 2 to 4, the one merged file of ` + "`TASKER_CONFIG_PATH`" + `;
6. environment variables, where a key names one. An empty variable counts as unset.

Tables merge key by key; other values replace. Tables named ` + "`_docs`" + `, or ending in
` + "`_docs`" + `, are documentation and ignored. An unknown key is an error.

Strings may contain ` + "`${NAME}`" + ` (an unset variable is an error if the value is in
effect) and ` + "`${NAME:-default}`" + ` (the default when unset or empty); ` + "`$${`" + ` writes ` + "`${`" + `.
Numbers and booleans may be given as such a string.

` + "`DATABASE_URL_FILE`" + ` names a file that holds the value of ` + "`DATABASE_URL`" + `.
` + "`DEPLOYMENT_MODE`" + ` counts only where it names a mode.

Two keys follow others when no file sets them: ` + "`poller.relaxed_interval_ms`" + ` is
` + "`timing.fallback_polling_interval_seconds`" + ` where a file sets that, and
` + "`worker.namespaces`" + ` takes over a list of supported namespaces.

Marks: **secret** is masked wherever it is shown; **reload** may change without a
restart; **planned** has no effect until the feature it names exists; **ignored** has
none, for the reason it names. Files that set such keys load, and a daemon that starts
names them in one warning. All other keys are active.
`

// ReferenceMarkdown writes the reference page of every key.
func ReferenceMarkdown() []byte {
	var b strings.Builder
	b.WriteString(referenceIntro)
	keys := Keys()
	root := ""
	for _, table := range byTable(keys) {
		if r, _, _ := strings.Cut(table.name, "."); r != root {
			root = r
			fmt.Fprintf(&b, "\n## %s\n", root)
		}
		fmt.Fprintf(&b, "\n### [%s]\n\n| key | type | default | allowed | what it is and does |\n|---|---|---|---|---|\n", table.name)
		for _, k := range table.keys {
			referenceRow(&b, k, k.Name())
			for i := range keys {
				if keys[i].Member() && strings.HasPrefix(keys[i].Path, k.Path+"[].") {
					referenceRow(&b, &keys[i], strings.TrimPrefix(keys[i].Path, k.Table()+"."))
				}
			}
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
	if text := k.defaultText(); text != "" {
		def = "`" + text + "`"
	}
	var marks []string
	if k.Secret {
		marks = append(marks, "**secret**")
	}
	if k.Reloadable {
		marks = append(marks, "**reload**")
	}
	if k.Status != StatusActive {
		marks = append(marks, "**"+k.StatusText()+".**")
	}
	if len(k.Env) > 0 {
		marks = append(marks, "`$"+strings.Join(k.Env, "`, `$")+"`")
	}
	about := strings.Join(append([]string{k.Description, k.Impact}, marks...), " ")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", name, k.Type, cell.Replace(def), cell.Replace(k.Rule()), cell.Replace(about))
}
