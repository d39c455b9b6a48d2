package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultsAreThoseOfTheKeys(t *testing.T) {
	t.Parallel()
	loaded, err := Defaults()
	require.NoError(t, err)
	for path, e := range loaded.entries {
		require.True(t, e.layer == layerBase || path == keyWorkerID || strings.HasSuffix(path, ".bind_address"), "%s is from layer %d", path, e.layer)
	}
}
