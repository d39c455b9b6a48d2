package predict

import (
	"errors"
	"math"
	"time"
)

// MaxFeatures bounds the features of a step.
const MaxFeatures = 8

const (
	forgetting = 0.995 // a time weighs half after 138 others
	ridge      = 100   // the covariance of weights that nothing is known of
	// maxTrace bounds the covariance: without it, features that do not change would let
	// forgetting inflate it until a single time outweighs all others.
	maxTrace = 1e4
)

// Regression estimates the logarithm of times as a linear function of the logarithms of
// features, by recursive least squares with exponential forgetting (Ljung, "System
// Identification", second edition, section 11.2). With x = (1, log(1+f)…), y the logarithm
// of the time in seconds and λ the forgetting:
//
//	k = Px / (λ + xᵀPx)    w += k(y - wᵀx)    P = (P - k xᵀP) / λ
type Regression struct {
	N       int         `json:"n"`
	Weights []float64   `json:"w"` // first that of the constant
	P       [][]float64 `json:"p"`
}

func newRegression(features int) *Regression {
	r := &Regression{Weights: make([]float64, features+1), P: make([][]float64, features+1)}
	for i := range r.P {
		r.P[i] = make([]float64, features+1)
		r.P[i][i] = ridge
	}
	return r
}

// terms are the x of features; a value that is not a finite positive number counts as 0.
func terms(features []float64) []float64 {
	x := make([]float64, 1, len(features)+1)
	x[0] = 1
	for _, f := range features {
		if !(f > 0) || math.IsInf(f, 0) {
			f = 0
		}
		x = append(x, math.Log1p(f))
	}
	return x
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func (r *Regression) add(features []float64, d time.Duration) {
	x, n := terms(features), len(r.Weights)
	px := make([]float64, n)
	for i := range px {
		px[i] = dot(r.P[i], x)
	}
	lambda := forgetting
	var trace float64
	for i := range r.P {
		trace += r.P[i][i]
	}
	if trace > maxTrace {
		lambda = 1
	}
	gain, miss := lambda+dot(x, px), logSeconds(d)-dot(r.Weights, x)
	for i := range n {
		r.Weights[i] += px[i] / gain * miss
		for j := i; j < n; j++ { // P stays symmetric
			r.P[i][j] = (r.P[i][j] - px[i]*px[j]/gain) / lambda
			r.P[j][i] = r.P[i][j]
		}
	}
	r.N++
}

func (r *Regression) expect(features []float64) time.Duration {
	return ofSeconds(math.Exp(min(dot(r.Weights, terms(features)), 50)))
}

func (r *Regression) check(features int) error {
	if features > MaxFeatures || len(r.Weights) != features+1 || len(r.P) != features+1 || r.N < 0 {
		return errors.New("invalid regression: other features")
	}
	for _, row := range r.P {
		if len(row) != features+1 {
			return errors.New("invalid regression: other features")
		}
	}
	return nil
}

func logSeconds(d time.Duration) float64 { return math.Log(min(max(d, MinTime), MaxTime).Seconds()) }
