package telemetry_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/telemetry"
)

// TestLogLinesDeceiveNobody in either format, those of the audit included.
func TestLogLinesDeceiveNobody(t *testing.T) {
	t.Parallel()
	const name = "shop\u202e\u009b31mevil"
	for _, format := range []string{telemetry.FormatJSON, telemetry.FormatConsole} {
		var b bytes.Buffer
		log, err := telemetry.NewLogger("info", format, &b)
		require.NoError(t, err)
		log.Warn("refused", zap.String("task", name))
		log.Named(telemetry.AuditLogger).Info("allowed", zap.String("task", name))
		require.NoError(t, log.Sync())
		lines := bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n"))
		require.Len(t, lines, 2)
		for _, line := range lines {
			require.Contains(t, string(line), `shop\u202e\u009b31mevil`, format)
			if format == telemetry.FormatJSON {
				var fields map[string]any
				require.NoError(t, json.Unmarshal(line, &fields))
				require.Equal(t, name, fields["task"])
			}
		}
	}
}
