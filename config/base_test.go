package config

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the base files from the table of keys")

func TestBaseFilesAreTheDefaultsOfTheKeys(t *testing.T) {
	for _, role := range ContextComplete.Roots() {
		path := "tasker/base/" + role + ".toml"
		want := baseFile(role)
		if *update {
			require.NoError(t, os.WriteFile(path, want, 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "run: go test ./config -run BaseFiles -update")
	}
}
