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

// TestAClaimThatGoesOnUnderOtherTokens: an executor writes these lines, and may learn of a
// new token before the handler begins.
func TestAClaimThatGoesOnUnderOtherTokens(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(ledger.File(dir, "executor-a.1"), []byte(
		"{\"k\":8,\"n\":9,\"at\":1}\n{\"k\":7,\"at\":2,\"s\":\"one\",\"a\":1,\"r\":true}\n{\"k\":7,\"n\":8,\"at\":3}\n{\"k\":7,\"o\":\"success\",\"at\":4}\n"), 0o600))
	list, err := ledger.Read(dir)
	require.NoError(t, err)
	require.Equal(t, []ledger.Execution{{Instance: "executor-a.1", Step: "one", Attempt: 1, Token: 7, Adopted: []int64{8, 9}, Remote: true,
		Start: time.UnixMicro(2), End: time.UnixMicro(4), Outcome: ledger.Succeeded}}, list)
	require.Equal(t, int64(9), list[0].Fence())
}
