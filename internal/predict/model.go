package predict

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// Version of the encoding and meaning of models. One of another version is not read,
	// and begins anew.
	Version = 1
	// MaxClasses bounds the classes of a model. Tasks of further ones count for the step.
	MaxClasses = 32

	minMedian     = 8   // a median of fewer times is not answered
	perWeight     = 8   // times that a regression must have seen, for each of its weights
	fadeError     = 0.1 // the weight of the last error
	regressionWin = 0.9 // it must be better than the median by this factor, to begin with
)

// Key names a model.
type Key struct{ Namespace, Template, Step string }

// Basis is what an expectation rests on.
type Basis string

// The bases, from the best.
const (
	ByRegression  Basis = "regression"   // of the class, or of the step where it has no class
	ByClassMedian Basis = "class_median" // of the step for the class
	ByStepMedian  Basis = "step_median"
	Unknown       Basis = "unknown"
)

// Model is what is known of a step of a template. It is not safe for concurrent use while it
// learns.
type Model struct {
	Version  int                  `json:"version"`
	Features []string             `json:"features,omitempty"` // as the policy declares them, see Values
	All      Estimate             `json:"all"`
	Classes  map[string]*Estimate `json:"classes,omitempty"`
	Judge    Judge                `json:"judge"`
	Outside  Judge                `json:"outside,omitzero"` // of a predictor outside
}

// Estimate is what is known of the times of some tasks.
type Estimate struct {
	Sketch     Sketch      `json:"sketch"`
	Regression *Regression `json:"regression,omitempty"`
	// How far the two were off lately, as the mean distance of logarithms, before they
	// learned of each time.
	RegressionError float64 `json:"regression_error,omitempty"`
	MedianError     float64 `json:"median_error,omitempty"`
	Regressed       bool    `json:"regressed,omitempty"` // the regression is the better one
}

// Expectation is how long a handler should take, and why.
type Expectation struct {
	Time   time.Duration
	Basis  Basis
	N      int       // times that the basis has seen
	Times  *Sketch   // of the class, or of the step
	Weight []float64 // of a regression: first that of the constant
}

// New returns a model of a step with these features, at most MaxFeatures of them.
func New(features []string) *Model {
	return &Model{Version: Version, Features: slices.Clone(features[:min(len(features), MaxFeatures)])}
}

// Of reports whether the model is of these features.
func (m *Model) Of(features []string) bool {
	return slices.Equal(m.Features, features[:min(len(features), MaxFeatures)])
}

// Expect returns what to expect of a task of a class, "" for none, whose features have these
// values, nil where they are not known.
func (m *Model) Expect(class string, features []float64) Expectation {
	e, basis := &m.All, ByStepMedian
	if c := m.Classes[class]; c != nil && c.Sketch.N() >= minMedian {
		e, basis = c, ByClassMedian
	}
	x := Expectation{Basis: basis, N: e.Sketch.N(), Times: &e.Sketch}
	switch {
	case e.Regressed && len(features) == len(m.Features):
		x.Time, x.Basis, x.N, x.Weight = e.Regression.expect(features), ByRegression, e.Regression.N, e.Regression.Weights
	case x.N >= minMedian:
		x.Time = x.Times.Quantile(0.5)
	default:
		x.Basis = Unknown
	}
	return x
}

// Learn takes in that a handler took a time. It reports whether trust has changed.
func (m *Model) Learn(at time.Time, class string, features []float64, took time.Duration) (changed bool) {
	if x := m.Expect(class, features); x.Basis != Unknown {
		changed = m.Judge.Add(at, x.Time, took)
	}
	m.All.learn(len(m.Features), features, took)
	if class == "" {
		return changed
	}
	c := m.Classes[class]
	if c == nil && len(m.Classes) < MaxClasses {
		if m.Classes == nil {
			m.Classes = map[string]*Estimate{}
		}
		c = &Estimate{}
		m.Classes[class] = c
	}
	if c != nil {
		c.learn(len(m.Features), features, took)
	}
	return changed
}

func (e *Estimate) learn(want int, features []float64, took time.Duration) {
	if want > 0 && len(features) == want {
		if e.Regression == nil {
			e.Regression = newRegression(want)
		}
		if e.Regression.N >= perWeight*(want+1) {
			e.compare(e.Regression.expect(features), e.Sketch.Quantile(0.5), took)
		}
		e.Regression.add(features, took)
	}
	e.Sketch.Add(took)
}

// compare notes how far both were off. Errors begin with the first one.
func (e *Estimate) compare(regression, median, took time.Duration) {
	off := func(d time.Duration) float64 {
		return max(logSeconds(d)-logSeconds(took), logSeconds(took)-logSeconds(d))
	}
	if e.RegressionError == 0 && e.MedianError == 0 {
		e.RegressionError, e.MedianError = off(regression), off(median)
	}
	e.RegressionError += fadeError * (off(regression) - e.RegressionError)
	e.MedianError += fadeError * (off(median) - e.MedianError)
	bound := e.MedianError
	if !e.Regressed {
		bound *= regressionWin
	}
	e.Regressed = e.RegressionError < bound
}

// Encode returns the model as JSON, for Decode with the same Version.
func (m *Model) Encode() ([]byte, error) { return json.Marshal(m) }

// Decode reads a model. One that is out of bounds is an error.
func Decode(body []byte) (*Model, error) {
	var m Model
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("decode a model: %w", err)
	}
	err := errors.Join(m.Judge.check(), m.Outside.check())
	for _, e := range append(slices.Collect(maps.Values(m.Classes)), &m.All) {
		switch {
		case e == nil:
			err = errors.New("invalid model: a class is null")
		case e.Regression != nil && err == nil:
			err = e.Regression.check(len(m.Features))
		case e.Regressed && e.Regression == nil:
			err = errors.New("invalid model: there is no regression")
		}
	}
	if m.Version != Version {
		err = fmt.Errorf("invalid version %d: want %d", m.Version, Version)
	}
	if err == nil && (len(m.Classes) > MaxClasses || len(m.Features) > MaxFeatures) {
		err = fmt.Errorf("invalid model: %d classes and %d features", len(m.Classes), len(m.Features))
	}
	if err != nil {
		return nil, fmt.Errorf("decode a model: %w", err)
	}
	return &m, nil
}
