package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/tasker-go/tasker/store"
)

// version is what `tasker-ctl version` tells.
type version struct {
	Version       string `json:"version"`
	Commit        string `json:"commit"`
	Modified      bool   `json:"modified"` // built from a changed work tree
	Go            string `json:"go"`
	Platform      string `json:"platform"`
	SchemaVersion int64  `json:"schema_version"` // what `migrate up` leads to
}

func readVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = firstOf(info.Main.Version, v.Version)
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	return v
}

func versionText() string {
	v := readVersion()
	return fmt.Sprintf("%s %s %s", v.Version, v.Go, v.Platform)
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell the version of this program and the schema it knows",
		Args:  arguments(),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			schema, err := store.SchemaVersion()
			if err != nil {
				return fmt.Errorf("read the migrations of this program: %w", err)
			}
			v.SchemaVersion = schema
			return a.emit(v, func() {
				t := a.newPairs()
				t.row("version", v.Version)
				t.row("commit", v.Commit)
				t.row("go", v.Go)
				t.row("platform", v.Platform)
				t.row("schema", v.SchemaVersion)
				t.write(a.stdout)
			})
		},
	}
}
