package chart

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/bench/internal/report"
	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

func TestSnapshot(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", "x.png")
	require.NoError(t, Snapshot(file, []report.Series{
		{Name: "a", Points: []stats.Point{{At: time.Second, Value: 100}, {At: 2 * time.Second, Value: 200}}},
		{Name: "b", Points: []stats.Point{{At: time.Second, Value: 50}, {At: 2 * time.Second, Value: 10}}},
	}, time.Second, 2*time.Second))
	f, err := os.Open(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	picture, err := png.Decode(f)
	require.NoError(t, err)
	require.Positive(t, picture.Bounds().Dx())
}
