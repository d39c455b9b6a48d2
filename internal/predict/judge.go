package predict

import (
	"errors"
	"math"
	"slices"
	"time"
)

// What a Judge looks at, and where trust ends and begins again. Between the bounds it
// stays as it was.
const (
	judged       = 48 // the last predictions
	judgedAtMost = time.Minute
	enough       = 16 // without so many nothing is judged

	loseOrder, gainOrder = 0.1, 0.3
	// Factors of the error of the median of what was judged. Errors within a factor of
	// two are no reason.
	loseError, gainError = 2, 1.5

	// tied: predictions within a lane of package order of each other put nothing in order.
	tied = 0.35
)

// Verdict is what a Judge found.
type Verdict struct {
	Trusted bool `json:"trusted"`
	N       int  `json:"n"`
	// Order is, of the pairs that the predictions put in order, the part that was in that
	// order less the part that was in the other: 1 for a perfect predictor, 0 for a random
	// one, -1 for an inverted one (the γ of Goodman and Kruskal, 1954). It is 1 where they
	// put nothing in order.
	Order float64 `json:"order"`
	// Error is the mean distance of the logarithms of predicted and real times, and
	// MedianError that of their median, which knows nothing of the task.
	Error       float64 `json:"error"`
	MedianError float64 `json:"median_error"`
}

// Judge compares predictions with what followed: the last 48, and of those as far as there
// are more than 16 only the ones of the last minute. The zero value trusts, and has judged
// nothing.
type Judge struct {
	Distrust bool     `json:"distrust,omitempty"`
	Window   []Judged `json:"window,omitempty"`
}

// Judged is a prediction with what followed, as logarithms of seconds.
type Judged struct {
	At        int64   `json:"t"` // Unix time
	Predicted float64 `json:"p"`
	Real      float64 `json:"r"`
}

// Add judges after another prediction. It reports whether trust has changed.
func (j *Judge) Add(at time.Time, predicted, reality time.Duration) (changed bool) {
	j.Window = append(j.Window, Judged{at.Unix(), logSeconds(predicted), logSeconds(reality)})
	drop := max(len(j.Window)-judged, 0)
	for len(j.Window)-drop > enough && at.Unix()-j.Window[drop].At > int64(judgedAtMost.Seconds()) {
		drop++
	}
	j.Window = slices.Delete(j.Window, 0, drop)
	v := j.Verdict()
	if v.N < enough {
		return false
	}
	was := j.Distrust
	switch spread := max(v.MedianError, math.Ln2); {
	case v.Order < loseOrder || v.Error > loseError*spread:
		j.Distrust = true
	case v.Order >= gainOrder && v.Error <= gainError*spread:
		j.Distrust = false
	}
	return j.Distrust != was
}

// Verdict returns what it thinks now.
func (j *Judge) Verdict() Verdict {
	v := Verdict{Trusted: !j.Distrust, N: len(j.Window), Order: 1}
	if v.N == 0 {
		return v
	}
	reals := make([]float64, 0, v.N)
	right, wrong := 0, 0
	for i, a := range j.Window {
		reals = append(reals, a.Real)
		v.Error += math.Abs(a.Predicted-a.Real) / float64(v.N)
		for _, b := range j.Window[:i] {
			switch by := (a.Predicted - b.Predicted) * (a.Real - b.Real); {
			case math.Abs(a.Predicted-b.Predicted) < tied || by == 0:
			case by > 0:
				right++
			default:
				wrong++
			}
		}
	}
	if right+wrong >= enough {
		v.Order = float64(right-wrong) / float64(right+wrong)
	}
	slices.Sort(reals)
	for _, r := range reals {
		v.MedianError += math.Abs(r-reals[v.N/2]) / float64(v.N)
	}
	return v
}

func (j *Judge) check() error {
	if len(j.Window) > judged {
		return errors.New("invalid judge: its window is too large")
	}
	return nil
}
