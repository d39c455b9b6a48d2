package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/workflow"
)

// golden compares text with a file in testdata/golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run the test with -update")
	require.Equal(t, string(want), got)
}

func diamondPicture(t *testing.T, status string, states diamondStates) picture {
	task := diamondTask(runningTask, status, states)
	return picture{
		task: task, nodes: drawGraph(diamondTemplate(t), task.Steps), now: at(8).Time,
		durations: map[string]time.Duration{"start": 500 * time.Millisecond, "right": 200 * time.Millisecond},
	}
}

// The diamond with its second step in every state a step can have.
func TestPictureOfEveryState(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, state := range workflow.StepStates() {
		p := diamondPicture(t, "steps_in_process", diamondStates{"complete", "complete", state.String(), "pending"})
		fmt.Fprintf(&b, "--- right is %s\n%s\n", state, strings.Join(p.lines(terminal{}, 0), "\n"))
	}
	p := diamondPicture(t, "steps_in_process", diamondStates{"in_progress", "pending", "pending", "pending"})
	p.nodes = drawGraph(diamondTemplate(t), p.task.Steps[:1])
	fmt.Fprintf(&b, "--- only start has been created\n%s\n", strings.Join(p.lines(terminal{}, 0), "\n"))
	p = diamondPicture(t, "complete", diamondStates{"complete", "complete", "complete", "complete"})
	fmt.Fprintf(&b, "--- complete, in colour\n%s\n", strings.ReplaceAll(strings.Join(p.lines(terminal{colour: true}, 0), "\n"), "\x1b", "ESC"))
	p.nodes = drawGraph(nil, p.task.Steps)
	fmt.Fprintf(&b, "--- without the template\n%s\n", strings.Join(p.lines(terminal{}, 0), "\n"))
	golden(t, "pictures.txt", b.String())
}

func TestPictureFitsTheWindow(t *testing.T) {
	t.Parallel()
	p := diamondPicture(t, "steps_in_process", diamondStates{"complete", "complete", "in_progress", "pending"})
	for height := 5; height < 8; height++ {
		lines := p.lines(terminal{}, height)
		require.LessOrEqual(t, len(lines), height)
		require.Contains(t, strings.Join(lines, "\n"), "● right", "what runs is shown first")
	}
	lines := p.lines(terminal{}, 5)
	require.Equal(t, "… and 3 more: 2 complete, 1 pending", lines[len(lines)-1])
}

// Batch instances stand where the template declares their pattern.
func TestGraphOfBatchInstances(t *testing.T) {
	t.Parallel()
	template := &workflow.Template{Steps: []workflow.StepTemplate{
		{Name: "split"}, {Name: "work", Dependencies: []string{"split"}}, {Name: "merge", Dependencies: []string{"work"}},
	}}
	steps := []client.StepReadiness{{Name: "split"}, {Name: "merge"}, {Name: "work_001"}, {Name: "work_002"}, {Name: "stranger"}}
	var got []string
	for _, n := range drawGraph(template, steps) {
		got = append(got, fmt.Sprintf("%d %s %v", n.level, n.name, n.parents))
	}
	require.Equal(t, []string{
		"0 split []", "0 stranger []", "1 work_001 [split]", "1 work_002 [split]", "2 merge [work_001 work_002]",
	}, got)
}

// Every step is drawn once, below all that it waits for.
func TestGraphLevels(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "steps")
		template := &workflow.Template{}
		var steps []client.StepReadiness
		for i := range n {
			s := workflow.StepTemplate{Name: fmt.Sprintf("s%dx", i)}
			for p := range i {
				if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
					s.Dependencies = append(s.Dependencies, fmt.Sprintf("s%dx", p))
				}
			}
			template.Steps = append(template.Steps, s)
			if rapid.Bool().Draw(t, "created") {
				steps = append(steps, client.StepReadiness{Name: s.Name, CurrentState: "pending"})
			}
		}
		nodes := drawGraph(template, steps)
		require.Len(t, nodes, n)
		level := map[string]int{}
		for _, node := range nodes { // parents come first
			for _, p := range node.parents {
				above, seen := level[p]
				require.True(t, seen, "%s is drawn before its parent %s", node.name, p)
				require.Greater(t, node.level, above)
			}
			level[node.name] = node.level
		}
		require.Len(t, level, n)
	})
}

func TestGraphWithACycleEnds(t *testing.T) {
	t.Parallel()
	template := &workflow.Template{Steps: []workflow.StepTemplate{
		{Name: "a", Dependencies: []string{"b"}}, {Name: "b", Dependencies: []string{"a"}},
	}}
	require.Len(t, drawGraph(template, nil), 2)
}

// screenAfter plays what a terminal would show: text, line feeds, cursor up,
// carriage return and the two ways of clearing.
func screenAfter(t *testing.T, output string) string {
	lines, row := []string{""}, 0
	for output != "" {
		if output[0] != '\x1b' {
			next := strings.IndexAny(output, "\n\r\x1b")
			switch {
			case next == 0 && output[0] == '\n':
				if row++; row == len(lines) {
					lines = append(lines, "")
				}
				output = output[1:]
			case next == 0:
				output = output[1:]
			default:
				require.Positive(t, next)
				lines[row], output = output[:next], output[next:]
			}
			continue
		}
		end := strings.IndexFunc(output[2:], func(r rune) bool { return r >= '@' && r <= '~' })
		require.GreaterOrEqual(t, end, 0, "%q", output)
		command, argument := output[2+end], output[2:2+end]
		output = output[3+end:]
		switch command {
		case 'A':
			var up int
			_, err := fmt.Sscan(argument, &up)
			require.NoError(t, err)
			row -= up
			require.GreaterOrEqual(t, row, 0, "the cursor leaves the picture")
		case 'J':
			lines = append(lines[:row:row], "")
		case 'K', 'h', 'l', 'm':
		default:
			t.Fatalf("unexpected sequence %q", command)
		}
	}
	return strings.Join(lines, "\n")
}

func TestWatchRedrawsInPlace(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.live = terminal{live: true, size: func() (int, int) { return 80, 24 }}
	o := s.run(t.Context(), "", "task", "watch", movingTask)
	require.Zero(t, o.code, o.stderr)
	golden(t, "watch-screen.txt", screenAfter(t, o.stdout))
	require.Equal(t, 7, strings.Count(o.stdout, wrapOn), "one drawing for each look")
}

// A window smaller than the picture never lets the cursor leave it.
func TestWatchInASmallWindow(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.live = terminal{live: true, size: func() (int, int) { return 80, 6 }}
	o := s.run(t.Context(), "", "task", "watch", movingTask)
	require.Zero(t, o.code)
	screen := screenAfter(t, o.stdout)
	require.Contains(t, screen, "join", "the last picture is whole")
	for picture := range strings.SplitSeq(strings.TrimSuffix(o.stdout, wrapOn), wrapOn) {
		if !strings.Contains(picture, "4/4") {
			require.LessOrEqual(t, strings.Count(picture, "\n"), 5)
		}
	}
}

// A task that changes is looked at often, one that does not ever more seldom.
func TestWatchPace(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s.beforePause = func() {
		if len(s.pauses) == 8 {
			cancel()
		}
	}
	o := s.run(ctx, "", "task", "watch", runningTask) // never changes
	require.Equal(t, exitInterrupted, o.code)
	require.Empty(t, o.stderr)
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	require.Equal(t, []time.Duration{ms(200), ms(400), ms(800), ms(1600), ms(2000), ms(2000), ms(2000), ms(2000)}, s.pauses)
	require.Contains(t, s.api.seen, "GET /v1/tasks/"+runningTask+"?wait=1.6s", "the request waits on the server too")
}

// A server that is away for a while is waited for, one that stays away is not.
func TestWatchSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	address := s.env["TASKER_ORCHESTRATION_URL"]
	s.env["TASKER_ORCHESTRATION_URL"] = s.env["NOWHERE"]
	o := s.run(t.Context(), "", "task", "watch", movingTask)
	require.Equal(t, exitUnavailable, o.code)
	require.Len(t, s.pauses, maxLosses)
	require.Equal(t, 1, strings.Count(o.stderr, "trying again"))

	s = newSession(t)
	s.env["TASKER_ORCHESTRATION_URL"] = address // answers, but fails at first
	a := &flaky{failures: 3, next: s.api}
	server := newServer(t, a)
	s.env["TASKER_ORCHESTRATION_URL"] = server
	o = s.run(t.Context(), "", "--timeout", "5s", "task", "watch", completeTask)
	require.Zero(t, o.code, o.stderr)
}

// flaky fails the first requests with 503.
type flaky struct {
	failures int
	next     http.Handler
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.failures > 0 {
		f.failures--
		fail(w, http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "starting")
		return
	}
	f.next.ServeHTTP(w, r)
}

func TestCreateWaitsOnlySoLong(t *testing.T) {
	t.Parallel()
	s := newSession(t)
	s.api.moves = -1000 // it does not get anywhere
	o := s.run(t.Context(), "", "task", "create", "--name", "diamond", "-n", "shapes", "-i", "{}", "--wait", "3s")
	require.Equal(t, exitFailed, o.code)
	require.Contains(t, o.stderr, "has not ended after 3s")
	var waited time.Duration
	for _, p := range s.pauses {
		waited += p
	}
	require.Equal(t, 3*time.Second, waited)
}

func TestBarsStayOnTheAxis(t *testing.T) {
	t.Parallel()
	moment := rapid.Custom(func(t *rapid.T) *float64 {
		if rapid.IntRange(0, 4).Draw(t, "known") == 0 {
			return nil
		}
		s := rapid.Float64Range(-1, 100).Draw(t, "seconds")
		return &s
	})
	rapid.Check(t, func(t *rapid.T) {
		line := &client.Timeline{Attempts: []client.StepAttempt{{
			Enqueued: moment.Draw(t, "enqueued"), Claimed: moment.Draw(t, "claimed"),
			Reported: moment.Draw(t, "reported"), Applied: moment.Draw(t, "applied"),
		}}}
		drawn := bar(line.Attempts[0], nil, spanOf(line))
		require.LessOrEqual(t, len([]rune(drawn)), barWidth)
		a := line.Attempts[0]
		if a.Claimed != nil && a.Reported != nil && *a.Claimed <= *a.Reported {
			require.Contains(t, drawn, "█", "an attempt that ran is seen")
		}
	})
}
