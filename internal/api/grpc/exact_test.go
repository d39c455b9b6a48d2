package grpc

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	taskerv1 "github.com/tasker-go/tasker/proto/tasker/v1"
)

// One document with a number that no double carries does not hide the other entries of a list.
func TestAListLeavesInexactDocumentsOut(t *testing.T) {
	t.Parallel()
	f := newFake(`[{"dlq_entry_uuid":"a","task_snapshot":{"ü":[1e400]},"metadata":{"n":1}},{"dlq_entry_uuid":"b","task_snapshot":{"n":1.5}}]`)
	_, over := served(t, f)
	letters := taskerv1.NewDlqServiceClient(over)
	var trailer metadata.MD
	list, err := letters.ListEntries(t.Context(), &taskerv1.ListDlqEntriesRequest{}, grpc.Trailer(&trailer))
	require.NoError(t, err)
	require.Len(t, list.GetEntries(), 2)
	require.Nil(t, list.GetEntries()[0].GetTaskSnapshot())
	require.InDelta(t, 1, list.GetEntries()[0].GetMetadata().GetFields()["n"].GetNumberValue(), 0)
	require.InDelta(t, 1.5, list.GetEntries()[1].GetTaskSnapshot().GetFields()["n"].GetNumberValue(), 0)
	require.Len(t, trailer.Get("tasker-left-out"), 1)
	require.Contains(t, trailer.Get("tasker-left-out")[0], `invalid number 1e400 in task_snapshot.\u00fc[0]`)

	_, err = letters.UpdateInvestigation(t.Context(), &taskerv1.UpdateDlqInvestigationRequest{DlqEntryUuid: id,
		Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"n": structpb.NewNumberValue(1 << 53)}}})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	require.ErrorContains(t, err, "invalid number 9007199254740992 in metadata.n")
}
