package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/tasker-go/tasker/store"
)

// versionReport is the answer of `version`.
type versionReport struct {
	Version       string `json:"version"`
	Commit        string `json:"commit"`
	Modified      bool   `json:"modified"` // built from a changed work tree
	Go            string `json:"go"`
	Platform      string `json:"platform"`
	SchemaVersion int64  `json:"schema_version"` // what `migrate up` leads to
}

func readVersion() versionReport {
	v := versionReport{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = cmp.Or(info.Main.Version, v.Version)
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

func (a *app) version() command {
	return command{
		use: "version", short: "Show the version of this program and its schema",
		local: func(context.Context, []string) error {
			v := readVersion()
			schema, err := store.SchemaVersion()
			if err != nil {
				return fmt.Errorf("read the migrations of this program: %w", err)
			}
			v.SchemaVersion = schema
			return a.emit(v, func() {
				a.showPairs(pair{"version", v.Version}, pair{"commit", v.Commit}, pair{"go", v.Go}, pair{"platform", v.Platform}, pair{"schema", v.SchemaVersion})
			})
		},
	}
}
