package daemon

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/remote"
	"github.com/tasker-go/tasker/internal/transcode"
	sessionv1 "github.com/tasker-go/tasker/proto/tasker/session/v1"
)

// streamed is a process with a session over gRPC.
type streamed struct {
	*testing.T
	stream grpc.BidiStreamingClient[sessionv1.RunRequest, sessionv1.RunResponse]
	opened *sessionv1.Opened
	told   []*sessionv1.Step // that came before the response to a request
	last   uint64
}

// overGRPC opens a session; breaking its context breaks the stream.
func (p *pair) overGRPC(ctx context.Context, t *testing.T, open *sessionv1.Open) *streamed {
	t.Helper()
	stream, err := sessionv1.NewSessionServiceClient(p.ofWork).Run(ctx)
	require.NoError(t, err)
	open.Protocol = remote.Protocol
	s := &streamed{T: t, stream: stream}
	s.opened = s.call(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Open{Open: open}}).GetOpened()
	require.NotNil(t, s.opened)
	return s
}

// call sends a request and returns the response to it.
func (s *streamed) call(r *sessionv1.RunRequest) *sessionv1.RunResponse {
	s.Helper()
	s.last++
	r.Id = s.last
	require.NoError(s, s.stream.Send(r))
	for {
		m, err := s.stream.Recv()
		require.NoError(s, err)
		if m.GetId() == r.GetId() {
			return m
		}
		s.told = append(s.told, m.GetTold().GetSteps()...)
	}
}

// step returns the next step that is told. Its queries are signs of life.
func (s *streamed) step() *sessionv1.Step {
	s.Helper()
	pgtest.Eventually(s.T, time.Minute, func() (bool, string) {
		if len(s.told) == 0 {
			s.call(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Result{Result: &sessionv1.Query{Fence: "1.1"}}})
		}
		return len(s.told) > 0, "no step is told"
	})
	step := s.told[0]
	s.told = s.told[1:]
	return step
}

func (s *streamed) report(r *sessionv1.Report) []*sessionv1.Rejection {
	s.Helper()
	m := s.call(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Reports{Reports: &sessionv1.Reports{Reports: []*sessionv1.Report{r}}}})
	require.NotNil(s, m.GetReported(), m)
	return m.GetReported().GetRejected()
}

func (s *streamed) succeed(fence, result string) {
	s.Helper()
	require.Empty(s, s.report(&sessionv1.Report{Fence: fence, Outcome: sessionv1.Outcome_OUTCOME_SUCCESS, Result: []byte(result)}))
}

func offers(permits int32, callables ...string) *sessionv1.Open {
	open := &sessionv1.Open{Permits: permits}
	for _, c := range callables {
		open.Callables = append(open.Callables, &sessionv1.Callable{Callable: c})
	}
	return open
}

func TestSessionsOverGRPC(t *testing.T) {
	t.Parallel()
	p := remotePair(t, longGrace)

	t.Run("run a workflow", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("linear", "extract", "load")
		s := p.overGRPC(p.ctx, t, offers(4, "extract", "load"))
		first := s.step()
		require.Equal(t, task, first.GetTaskUuid())
		require.JSONEq(t, `{"n":1}`, string(first.GetContext()))
		require.JSONEq(t, `{"of":"extract"}`, string(first.GetInitialization()))
		saved := s.call(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Checkpoint{
			Checkpoint: &sessionv1.Save{Fence: first.GetFence(), Cursor: []byte(`"here"`), ItemsProcessed: 1}}}).GetSaved()
		require.WithinDuration(t, time.Now(), saved.GetSavedAt().AsTime(), time.Minute)
		s.succeed(first.GetFence(), `{"rows":[12345678901234567890]}`)
		second := s.step()
		require.JSONEq(t, `{"extract_step":{"rows":[12345678901234567890]}}`, string(second.GetDependencyResults()))
		of := func(step string) *sessionv1.RunResponse {
			return s.call(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Result{Result: &sessionv1.Query{Fence: second.GetFence(), Step: step}}})
		}
		require.Contains(t, string(of("extract_step").GetResult().GetResult()), `12345678901234567890`)
		require.EqualValues(t, codes.NotFound, of("none").GetFailure().GetCode())
		s.succeed(second.GetFence(), `null`)
		p.ended(t, task, "complete")
		require.EqualValues(t, 409, s.report(&sessionv1.Report{Fence: "999999.1", Outcome: sessionv1.Outcome_OUTCOME_SUCCESS})[0].GetStatus())
		bad := s.call(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Reports{
			Reports: &sessionv1.Reports{Reports: []*sessionv1.Report{{Fence: "1.1", Result: []byte(`{"a":`)}}}}})
		require.EqualValues(t, codes.InvalidArgument, bad.GetFailure().GetCode(), "a result that is no JSON")
	})

	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("draws", "draws", "reads")
		s := p.overGRPC(p.ctx, t, offers(1, "draws", "reads"))
		fence, data := s.step().GetFence(), []byte("\x89PNG\x00\xff")
		bad := s.report(&sessionv1.Report{Fence: fence, Outcome: sessionv1.Outcome_OUTCOME_SUCCESS, ResultBytes: data, ContentType: "png"})
		require.Len(t, bad, 1)
		require.EqualValues(t, 400, bad[0].GetStatus())
		require.Empty(t, s.report(&sessionv1.Report{Fence: fence, Outcome: sessionv1.Outcome_OUTCOME_SUCCESS, ResultBytes: data, ContentType: "image/png"}))
		second := s.step()
		require.JSONEq(t, `{"draws_step":{"$bytes":"iVBORwD/","content_type":"image/png"}}`, string(second.GetDependencyResults()))
		require.Empty(t, s.report(&sessionv1.Report{Fence: second.GetFence(), Outcome: sessionv1.Outcome_OUTCOME_SUCCESS, ResultBytes: []byte{}}))
		require.JSONEq(t, `{"$bytes":"","content_type":"application/octet-stream"}`, p.results(t, task)["reads_step"], "none are bytes, too")
	})

	t.Run("a stop and a clean end", func(t *testing.T) {
		t.Parallel()
		s := p.overGRPC(p.ctx, t, offers(1, "moved"))
		task, waits := p.workflow("first", "moved"), p.workflow("second", "moved")
		step := s.step()
		if step.GetTaskUuid() != task {
			task, waits = waits, task
		}
		require.NoError(t, s.stream.Send(&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Stop{Stop: &sessionv1.Stop{}}}))
		s.succeed(step.GetFence(), `1`)
		p.ended(t, task, "complete")
		require.NoError(t, s.stream.CloseSend())
		for err := error(nil); err == nil; {
			if _, err = s.stream.Recv(); err != nil {
				require.ErrorIs(t, err, io.EOF)
			}
		}
		other := p.overGRPC(p.ctx, t, offers(1, "moved"))
		again := other.step()
		require.Equal(t, waits, again.GetTaskUuid())
		require.EqualValues(t, 1, again.GetAttempt())
		other.succeed(again.GetFence(), `1`)
	})

	t.Run("a broken stream", func(t *testing.T) {
		t.Parallel()
		task := p.workflow("broken", "broken")
		ctx, cut := context.WithCancel(p.ctx)
		defer cut()
		step := p.overGRPC(ctx, t, offers(1, "broken")).step()
		cut()
		open := offers(1, "broken")
		open.Held = []*sessionv1.Held{{Fence: step.GetFence(), TaskUuid: task}}
		s := p.overGRPC(p.ctx, t, open)
		require.Len(t, s.opened.GetKept(), 1)
		require.Equal(t, step.GetFence(), s.opened.GetKept()[0].GetFence())
		require.EqualValues(t, 409, s.report(&sessionv1.Report{Fence: step.GetFence(), Outcome: sessionv1.Outcome_OUTCOME_SUCCESS})[0].GetStatus(), "its former fence")
		s.succeed(s.opened.GetKept()[0].GetNewFence(), `1`)
		require.Equal(t, 1, p.ended(t, task, "complete").Attempts)
	})

	t.Run("requests without meaning", func(t *testing.T) {
		t.Parallel()
		for name, tt := range map[string]struct {
			first *sessionv1.RunRequest
			code  codes.Code
			says  string
		}{
			"no open":  {&sessionv1.RunRequest{}, codes.InvalidArgument, "The first request of a session is open"},
			"protocol": {&sessionv1.RunRequest{Request: &sessionv1.RunRequest_Open{Open: &sessionv1.Open{Protocol: 7}}}, codes.InvalidArgument, "invalid protocol 7: want 1"},
		} {
			stream, err := sessionv1.NewSessionServiceClient(p.ofWork).Run(p.ctx)
			require.NoError(t, err)
			require.NoError(t, stream.Send(tt.first))
			_, err = stream.Recv()
			require.Equal(t, tt.code, status.Code(err), name)
			require.Equal(t, tt.says, status.Convert(err).Message(), name)
		}
	})
}

// TestASilentStreamIsLost: a process that sends nothing is not kept present by its stream.
func TestASilentStreamIsLost(t *testing.T) {
	t.Parallel()
	p := newPair(t, "", shortSessions)
	task := p.workflow("frozen", "frozen")
	silent := p.overGRPC(p.ctx, t, offers(1, "frozen"))
	step := silent.step()
	other := p.overGRPC(p.ctx, t, offers(1, "frozen"))
	again := other.step()
	require.Equal(t, task, again.GetTaskUuid())
	require.EqualValues(t, 1, again.GetAttempt(), "a loss uses no attempt")
	require.NotEqual(t, step.GetFence(), again.GetFence())
	other.succeed(again.GetFence(), `1`)
	p.ended(t, task, "complete")
	require.NoError(t, silent.stream.Send(&sessionv1.RunRequest{}))
	_, err := silent.stream.Recv()
	require.Equal(t, codes.NotFound, status.Code(err), err)
}

// TestVectorsOverGRPC: each message of the vectors has a form in gRPC that is the same message.
func TestVectorsOverGRPC(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../sdk/vectors/protocol.json")
	require.NoError(t, err)
	var v struct {
		Base  map[string]json.RawMessage
		Steps []struct {
			Meaning      string
			Step, Report map[string]json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(text, &v))
	same := func(message map[string]json.RawMessage, into proto.Message, about string) {
		doc, err := json.Marshal(message)
		require.NoError(t, err)
		require.NoError(t, transcode.Decode(doc, into), about)
		again, err := transcode.Encode(into)
		require.NoError(t, err, about)
		var back map[string]any
		require.NoError(t, json.Unmarshal(again, &back))
		for key, value := range message {
			if key == "of_a_later_version" || key == "requested_at" || string(value) == "null" {
				continue
			}
			var want any
			require.NoError(t, json.Unmarshal(value, &want))
			contains(t, want, back[key], about+": "+key)
		}
	}
	for _, one := range v.Steps {
		for key, value := range v.Base {
			if _, own := one.Step[key]; !own {
				one.Step[key] = value
			}
		}
		same(one.Step, &sessionv1.Step{}, one.Meaning)
		same(one.Report, &sessionv1.Report{}, one.Meaning)
	}
}

// contains checks that a value has what another one has; fields without presence are there in any case.
func contains(t *testing.T, want, got any, about string) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(t, ok, about)
		for key, value := range want {
			if key != "timestamp" { // has another form
				contains(t, value, object[key], about+"."+key)
			}
		}
	case []any:
		list, ok := got.([]any)
		require.True(t, ok && len(list) == len(want), about)
		for i := range want {
			contains(t, want[i], list[i], about)
		}
	default:
		require.Equal(t, want, got, about)
	}
}
