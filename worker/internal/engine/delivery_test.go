package engine

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store"
)

func TestLargeResultsTravelInSeveralStatements(t *testing.T) {
	t.Parallel()
	d := delivery[*Execution, bool]{size: reportSize}
	fitting := func(sizes ...int) int {
		var list []*parcel[*Execution, bool]
		for _, n := range sizes {
			list = append(list, &parcel[*Execution, bool]{item: &Execution{Report: store.Report{Result: make(json.RawMessage, n)}}})
		}
		return d.fitting(list)
	}
	require.Equal(t, 3, fitting(1, 1, 1))
	require.Equal(t, 1, fitting(maxReportBytes+1, 1), "a large one goes alone")
	require.Equal(t, 2, fitting(maxReportBytes/2, maxReportBytes/2, 1))
	require.Equal(t, 2, fitting(maxReportBytes/2, 1))
}
