package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/test/bench/internal/stats"
)

// A run of some sections has no rows for the goals of others.
func TestPartialRuns(t *testing.T) {
	goals := []Goal{{Area: "a", What: "x", Figures: []string{"x"}, Unit: "/s", Limit: 1}, {Area: "a", What: "y", Figures: []string{"y"}, Unit: "/s", Limit: 1}}
	for partial, rows := range map[bool]int{false: 2, true: 1} {
		r := New()
		r.Partial = partial
		r.Set("x", 2)
		r.Evaluate(goals)
		require.Len(t, r.Goals, rows)
	}
}

func TestEvaluate(t *testing.T) {
	t.Parallel()
	r := New()
	r.Set("a.rate", 90)
	r.Set("b.rate", 120)
	r.Set("peer.rate", 100)
	r.Set("a.ms", 3)
	r.Set("b.ms", 9)
	r.Missing("gone.rate", "the peer is not there")
	r.Evaluate([]Goal{
		{What: "worst of several, at least", Figures: []string{"a.rate", "b.rate", "unknown"}, Limit: 100},
		{What: "worst of several, at most", Figures: []string{"a.ms", "b.ms"}, Limit: 9, AtMost: true},
		{What: "against a peer", Figures: []string{"b.rate"}, Limit: 1, LimitTimes: "peer.rate", Peer: "peer.rate", PeerName: "Peer"},
		{What: "many times a peer", Figures: []string{"b.rate"}, Limit: 2, LimitTimes: "peer.rate", Peer: "peer.rate", PeerName: "Peer"},
		{What: "peer missing", Figures: []string{"b.rate"}, Limit: 1, LimitTimes: "gone.rate", Peer: "gone.rate", PeerName: "Peer"},
		{What: "not run", Figures: []string{"unknown"}, Limit: 1},
		{What: "later", Limit: 1, Later: "not built"},
	})
	verdicts := make([]Verdict, len(r.Goals))
	for i, o := range r.Goals {
		verdicts[i] = o.Verdict
	}
	require.Equal(t, []Verdict{NotMet, Met, Met, NotMet, NotMeasured, NotMeasured, NotYet}, verdicts)
	require.Equal(t, "a.rate", r.Goals[0].Figure)
	require.Equal(t, "b.ms", r.Goals[1].Figure)
	require.InDelta(t, 1.2, *r.Goals[2].Ratio, 1e-9)
	require.Equal(t, "≥ Peer", r.Goals[2].Goal)
	require.Equal(t, "≥ 2 × Peer", r.Goals[3].Goal)
	require.Equal(t, "the peer is not there", r.Goals[4].Reason)
	require.NotNil(t, r.Goals[4].Ours, "our figure is shown all the same")
	require.Equal(t, "its section did not run", r.Goals[5].Reason)
}

func TestAGoalIsMetByItsAlternative(t *testing.T) {
	t.Parallel()
	r := New()
	r.Set("rate", 90)
	r.Set("cheap.us", 40)
	r.Set("dear.us", 60)
	goal := func(rate, us string) Goal {
		return Goal{Area: "area", What: "what", Figures: []string{rate}, Unit: "/s", Limit: 100,
			Or: &Goal{Figures: []string{us}, Unit: "µs", Limit: 50, AtMost: true}}
	}
	r.Evaluate([]Goal{goal("rate", "dear.us"), goal("rate", "cheap.us"), goal("unknown", "cheap.us"), goal("rate", "unknown")})
	for i, want := range []struct {
		verdict Verdict
		figure  string
	}{{NotMet, "rate"}, {Met, "cheap.us"}, {Met, "cheap.us"}, {NotMet, "rate"}} {
		require.Equal(t, want.verdict, r.Goals[i].Verdict)
		require.Equal(t, want.figure, r.Goals[i].Figure)
		require.Equal(t, "what", r.Goals[i].What)
		require.Equal(t, "≥ 100 /s or ≤ 50 µs", r.Goals[i].Goal)
	}
}

func TestNoGoalIsJudgedOnABusyMachine(t *testing.T) {
	t.Parallel()
	r := New()
	r.Set("quiet.rate", 90)
	r.Beside(Quiet)
	r.Set("loud.rate", 100)
	r.Beside(12.34)
	r.Evaluate([]Goal{
		{What: "quiet", Figures: []string{"quiet.rate"}, Limit: 100},
		{What: "loud", Figures: []string{"quiet.rate", "loud.rate"}, Limit: 1},
		{What: "a loud peer", Figures: []string{"quiet.rate"}, Limit: 1, LimitTimes: "loud.rate", Peer: "loud.rate", PeerName: "Peer"},
		{What: "not run", Figures: []string{"unknown"}, Limit: 1},
	})
	for i, want := range []Verdict{NotMet, NotQuiet, NotQuiet, NotMeasured} {
		require.Equal(t, want, r.Goals[i].Verdict, r.Goals[i].What)
	}
	require.Equal(t, "other programs took 12.3 % of the CPUs, more than 5 %", r.Goals[1].Reason)
	require.InDelta(t, 0.9, *r.Goals[2].Ratio, 1e-9, "figures and ratios are shown all the same")
}

func TestGoalsNameTheirFigures(t *testing.T) {
	t.Parallel()
	for _, g := range Goals() {
		require.NotEmpty(t, g.What)
		require.Truef(t, g.Later != "" || len(g.Figures) > 0, "%s: %s has neither figures nor a reason", g.Area, g.What)
		require.Equalf(t, g.Peer == "", g.PeerName == "", "%s: %s names half of a peer", g.Area, g.What)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]float64{"0": 0, "7": 7, "0.012": 0.0123, "0.12": 0.1234, "1.23": 1.234, "12.3": 12.34, "123": 123.4,
		"1,234": 1234.4, "1,234,567": 1234567, "-1,234": -1234} {
		require.Equal(t, want, Number(v))
	}
}

func example() *Report {
	r := New()
	r.Date = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	r.Set("x", 1500)
	r.SetSummary("lat", stats.Summary{P50: time.Millisecond})
	r.Beside(1)
	table := r.Table("Rates", "name", "rate")
	table.Notes = []string{"A note."}
	table.Add("short", 1)
	table.Add("a | longer name", 12345)
	r.Evaluate([]Goal{{Area: "area", What: "what", Figures: []string{"x"}, Unit: "/s", Limit: 1000}})
	return r
}

func TestText(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, example().Text(&b))
	require.Contains(t, b.String(), "  name              rate\n  short                1\n  a | longer name  12345\n")
	require.Contains(t, b.String(), "  area  what  ≥ 1,000 /s  1,500 /s                 –      –  met\n")
	require.Greater(t, strings.Index(b.String(), "Goals"), strings.Index(b.String(), "Rates"), "the goals come last")
}

func TestWrite(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), "new", "latest")
	require.NoError(t, example().Write(base))
	raw, err := os.ReadFile(base + ".json")
	require.NoError(t, err)
	var back Report
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, *example(), back)
	page, err := os.ReadFile(base + ".md")
	require.NoError(t, err)
	require.Contains(t, string(page), "| name | rate |\n| --- | --: |\n| short | 1 |\n| a \\| longer name | 12345 |\n")
	require.Less(t, strings.Index(string(page), "## Goals"), strings.Index(string(page), "## Rates"), "the goals come first")
}
