package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Verdict is the result of a goal.
type Verdict string

// The verdicts.
const (
	Met         Verdict = "met"
	NotMet      Verdict = "NOT MET"
	NotMeasured Verdict = "not measured"
	NotYet      Verdict = "not yet"
	NotQuiet    Verdict = "not judged"
)

// notRun is why a figure of another section is missing.
const notRun = "its section did not run"

// Quiet is the share of the CPUs, in per cent, that other programs may use while a figure
// of a goal is measured.
const Quiet = 5

// Goal is one thing a run has to show.
type Goal struct {
	Area string
	What string
	// Figures of Tasker; the worst measured one counts.
	Figures []string
	Unit    string
	// Limit is a bound: the figure must be at least that, or at most where
	// AtMost is set. LimitTimes names a figure that Limit is multiplied with.
	Limit      float64
	LimitTimes string
	AtMost     bool
	// Peer is the figure of a peer to compare with.
	Peer     string
	PeerName string
	// Or is another way to meet the goal, if not nil; its Area and What are not used.
	Or *Goal
	// Later says why it cannot be measured yet.
	Later string
}

// Outcome is a goal with its result.
type Outcome struct {
	Area    string   `json:"area"`
	What    string   `json:"what"`
	Goal    string   `json:"goal"`
	Ours    *float64 `json:"ours"`
	Figure  string   `json:"figure,omitempty"`
	Unit    string   `json:"unit,omitempty"`
	Peer    *float64 `json:"peer"`
	Name    string   `json:"peer_name,omitempty"`
	Ratio   *float64 `json:"ratio"` // Tasker's by the peer's
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason,omitempty"`
}

// Evaluate holds the figures of the report against the goals.
func (r *Report) Evaluate(goals []Goal) {
	r.Goals = r.Goals[:0]
	for i := range goals {
		if o := r.evaluate(&goals[i]); !r.Partial || o.Reason != notRun {
			r.Goals = append(r.Goals, o)
		}
	}
}

// evaluate uses the alternative of a goal if only that is met.
func (r *Report) evaluate(g *Goal) Outcome {
	o := r.judge(g)
	if g.Or == nil {
		return o
	}
	goal, other := o.Goal, r.judge(g.Or)
	if o.Verdict != Met && other.Verdict == Met {
		o = other
	}
	o.Area, o.What, o.Goal = g.Area, g.What, goal+" or "+other.Goal
	return o
}

func (r *Report) judge(g *Goal) Outcome {
	o := Outcome{Area: g.Area, What: g.What, Unit: g.Unit, Goal: r.goalText(g), Verdict: NotMeasured}
	if g.Later != "" {
		o.Verdict, o.Reason = NotYet, g.Later
		return o
	}
	if peer, ok := r.Figures[g.Peer]; ok {
		o.Peer, o.Name = &peer, g.PeerName
	}
	figure, value, ok := r.worst(g)
	if !ok {
		o.Reason = r.whyAbsent(g)
		return o
	}
	o.Ours, o.Figure = &value, figure
	if o.Peer != nil && *o.Peer != 0 {
		ratio := value / *o.Peer
		o.Ratio = &ratio
	}
	limit, ok := r.limit(g)
	switch {
	case !ok:
		o.Reason = r.whyAbsent(g)
	case r.others(g) > Quiet:
		o.Verdict, o.Reason = NotQuiet, fmt.Sprintf("other programs took %s %% of the CPUs, more than %d %%", Number(r.others(g)), Quiet)
	case g.AtMost && value <= limit, !g.AtMost && value >= limit:
		o.Verdict = Met
	default:
		o.Verdict = NotMet
	}
	return o
}

// others is the largest use of other programs while the goal's figures and those it is
// compared with were measured.
func (r *Report) others(g *Goal) (most float64) {
	for _, f := range append(slices.Clone(g.Figures), g.Peer, g.LimitTimes) {
		most = max(most, r.Others[f])
	}
	return most
}

// worst is the figure furthest from the goal, among the measured ones.
func (r *Report) worst(g *Goal) (name string, value float64, ok bool) {
	for _, f := range g.Figures {
		v, found := r.Figures[f]
		if !found {
			continue
		}
		if !ok || (g.AtMost && v > value) || (!g.AtMost && v < value) {
			name, value, ok = f, v, true
		}
	}
	return name, value, ok
}

func (r *Report) limit(g *Goal) (float64, bool) {
	if g.LimitTimes == "" {
		return g.Limit, true
	}
	v, ok := r.Figures[g.LimitTimes]
	return g.Limit * v, ok
}

func (r *Report) goalText(g *Goal) string {
	sign := "≥"
	if g.AtMost {
		sign = "≤"
	}
	if g.LimitTimes == "" {
		return fmt.Sprintf("%s %s %s", sign, Number(g.Limit), g.Unit)
	}
	if g.Limit == 1 {
		return fmt.Sprintf("%s %s", sign, g.PeerName)
	}
	return fmt.Sprintf("%s %s × %s", sign, Number(g.Limit), g.PeerName)
}

func (r *Report) whyAbsent(g *Goal) string {
	for _, f := range append(slices.Clone(g.Figures), g.Peer) {
		if reason := r.Absent[f]; reason != "" {
			return reason
		}
	}
	return notRun
}

// Number formats a value with its significant digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < 1000, a >= 1000:
		return thousands(fmt.Sprintf("%.0f", v))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// thousands puts a comma between groups of three digits.
func thousands(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return sign + digits
}
