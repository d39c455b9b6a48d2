package ledger_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/chaos/internal/ledger"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := t.TempDir()
	w, err := ledger.Create(dir, "worker-a.1")
	require.NoError(t, err)
	began := time.UnixMicro(time.Now().UnixMicro())
	first := ledger.Execution{Instance: "worker-a.1", Task: uuid.New(), Step: "one", Attempt: 1, Token: 7, Start: began}
	second := ledger.Execution{Instance: "worker-a.1", Task: uuid.New(), Step: "two", Attempt: 2, Token: 8, Start: began,
		Parents: map[string]int64{"one": 7}}
	require.NoError(t, w.Begin(first))
	require.NoError(t, w.Begin(second))
	require.NoError(t, w.End(7, began.Add(time.Second), ledger.Succeeded))
	first.End, first.Outcome = began.Add(time.Second), ledger.Succeeded

	list, err := ledger.Read(dir)
	require.NoError(t, err)
	require.Equal(t, []ledger.Execution{first, second}, list, "the second was cut off")

	_, err = ledger.Create(dir, "worker-a.1")
	require.Error(t, err, "each start has a file of its own")
}

func TestAKillInTheMiddleOfALine(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "w"+ledger.Suffix), []byte(text), 0o600))
	}
	write("{\"k\":7,\"at\":1,\"s\":\"one\",\"a\":1}\n{\"k\":7,\"at\":")
	list, err := ledger.Read(dir)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Zero(t, list[0].End)

	write("{\"k\":7,\n")
	_, err = ledger.Read(dir)
	require.Error(t, err, "but not elsewhere")
}
