package predict_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tasker-go/tasker/internal/predict"
)

func times() *rapid.Generator[[]time.Duration] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(math.Exp(rapid.Float64Range(math.Log(float64(predict.MinTime)), math.Log(float64(predict.MaxTime))).Draw(t, "log")))
	}), 1, 300)
}

func sketchOf(list []time.Duration) *predict.Sketch {
	var s predict.Sketch
	for _, d := range list {
		s.Add(d)
	}
	return &s
}

func TestQuantilesAreWithinTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := times().Draw(t, "times")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		got := sketchOf(list).Quantile(q)
		slices.Sort(list)
		want := list[int(q*float64(len(list)-1))]
		if off := math.Abs(got.Seconds()-want.Seconds()) / want.Seconds(); off > predict.RelativeError+1e-4 {
			t.Fatalf("quantile %g is %s, and the sketch says %s", q, want, got)
		}
	})
}

func TestMergedSketchesAreThatOfAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := times().Draw(t, "a"), times().Draw(t, "b")
		merged := sketchOf(a)
		merged.Merge(sketchOf(b))
		require.Equal(t, sketchOf(slices.Concat(a, b)), merged)
	})
}

// TestASketchForgets: what was before weighs less and less, and the count is bounded.
func TestASketchForgets(t *testing.T) {
	t.Parallel()
	var s predict.Sketch
	for range 20_000 {
		s.Add(time.Second)
	}
	for range 10_000 {
		s.Add(time.Minute)
	}
	require.Less(t, s.N(), 5000)
	require.Greater(t, s.Quantile(0.5), 50*time.Second)
	require.Zero(t, (&predict.Sketch{}).Quantile(0.5))
}

// planted is a step whose time is a power law of two numbers, with noise.
type planted struct {
	r          *rand.Rand
	base, a, b float64
	noise      float64
}

func (p *planted) next() (features []float64, took time.Duration) {
	f, g := math.Exp(6*p.r.Float64()), math.Exp(4*p.r.Float64())
	y := p.base + p.a*math.Log1p(f) + p.b*math.Log1p(g) + p.noise*p.r.NormFloat64()
	return []float64{f, g}, time.Duration(math.Exp(y) * float64(time.Second))
}

func TestTheRegressionFindsPlantedCoefficients(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := planted{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), rapid.Float64Range(-2, 2).Draw(t, "base"),
			rapid.Float64Range(-1, 1).Draw(t, "a"), rapid.Float64Range(0.5, 1).Draw(t, "b"), 0.01}
		m := predict.New([]string{"f", "g"})
		at := time.Unix(1e9, 0)
		for range 300 {
			f, took := p.next()
			m.Learn(at, "", f, took)
		}
		x := m.Expect("", []float64{10, 10})
		if x.Basis != predict.ByRegression || math.Abs(x.Weight[0]-p.base) > 0.1 || math.Abs(x.Weight[1]-p.a) > 0.05 || math.Abs(x.Weight[2]-p.b) > 0.05 {
			t.Fatalf("planted %+v, found %+v", p, x)
		}
		if v := m.Judge.Verdict(); !v.Trusted || v.Order < 0.8 {
			t.Fatalf("%+v", v)
		}
	})
}

// TestTheMedianIsUsedWhereTheFeaturesSayNothing, and where they are not at hand.
func TestTheMedianIsUsedWhereTheFeaturesSayNothing(t *testing.T) {
	t.Parallel()
	p := planted{r: rand.New(rand.NewPCG(1, 2)), noise: 1}
	m := predict.New([]string{"f", "g"})
	require.Equal(t, predict.Unknown, m.Expect("", nil).Basis)
	for i := range 400 {
		f, took := p.next()
		class, factor := "small", 1.0
		if i%2 == 0 {
			class, factor = "large", 1000
		}
		m.Learn(time.Unix(int64(i), 0), class, f, time.Duration(took.Seconds()*factor*1e9))
	}
	small, large, other := m.Expect("small", []float64{1, 2}), m.Expect("large", []float64{1, 2}), m.Expect("other", nil)
	require.Equal(t, predict.ByClassMedian, small.Basis)
	require.InDelta(t, 1, small.Time.Seconds(), 0.5)
	require.InDelta(t, 1000, large.Time.Seconds(), 500)
	require.Equal(t, predict.ByStepMedian, other.Basis)
	require.True(t, m.Judge.Verdict().Trusted)

	p.a, p.noise = 1, 0.1 // now they say something
	for i := range 300 {
		f, took := p.next()
		m.Learn(time.Unix(int64(i), 0), "small", f, took)
	}
	require.Equal(t, predict.ByRegression, m.Expect("small", []float64{1, 2}).Basis)
	require.Equal(t, predict.ByClassMedian, m.Expect("small", nil).Basis, "without the payload")
}

// until returns after how many predictions at the latest the judge trusts, or not, and -1 if
// it does not come to that within 200.
func until(j *predict.Judge, trusted bool, next func() (predicted, reality time.Duration)) int {
	for i := range 200 {
		predicted, reality := next()
		j.Add(time.Unix(int64(i), 0), predicted, reality)
		if j.Verdict().Trusted == trusted {
			return i + 1
		}
	}
	return -1
}

func TestInvertedAndRandomPredictorsAreNoticed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		draw := func() time.Duration { return time.Duration(math.Exp(1.2*r.NormFloat64()) * float64(time.Second)) }
		good := func() (predicted, reality time.Duration) {
			d := draw()
			return d + time.Duration(r.Int64N(int64(d/4)+1)), d
		}
		inverted := func() (predicted, reality time.Duration) { d := draw(); return time.Duration(1e18 / float64(d)), d }
		random := func() (predicted, reality time.Duration) { return draw(), draw() }
		far := func() (predicted, reality time.Duration) { d := draw(); return 20 * d, d }
		for name, bad := range map[string]func() (predicted, reality time.Duration){"inverted": inverted, "random": random, "far off": far} {
			var j predict.Judge
			for i := range 100 {
				predicted, reality := good()
				require.False(t, j.Add(time.Unix(int64(i), 0), predicted, reality), "a good predictor is trusted")
			}
			n := until(&j, false, bad)
			if n < 0 || n > 60 && name != "random" {
				t.Fatalf("%s, seed %d: noticed after %d: %+v", name, seed, n, j.Verdict())
			}
			if n = until(&j, true, good); n < 0 || n > 60 {
				t.Fatalf("%s, seed %d: trusted again after %d: %+v", name, seed, n, j.Verdict())
			}
			fresh := predict.Judge{}
			if n = until(&fresh, false, bad); n < 0 {
				t.Fatalf("%s, seed %d: from the beginning, and never noticed", name, seed)
			}
		}
	}
}

// TestAConstantIsTrusted: it puts nothing in order, so nothing in a wrong one.
func TestAConstantIsTrusted(t *testing.T) {
	t.Parallel()
	var j predict.Judge
	r := rand.New(rand.NewPCG(3, 4))
	require.Equal(t, -1, until(&j, false, func() (predicted, reality time.Duration) {
		return time.Second, time.Duration(math.Exp(r.NormFloat64()) * float64(time.Second))
	}))
}

// TestOldPredictionsAreNotJudged: those of the last minute count, and the last 16 in any case.
func TestOldPredictionsAreNotJudged(t *testing.T) {
	t.Parallel()
	var j predict.Judge
	for i := range 40 {
		j.Add(time.Unix(0, 0), time.Second<<(i%8), time.Second<<(7-i%8))
	}
	require.False(t, j.Verdict().Trusted)
	for i := range 16 {
		j.Add(time.Unix(100, 0), time.Second<<(i%8), time.Second<<(i%8))
	}
	require.Equal(t, 16, j.Verdict().N)
	require.True(t, j.Verdict().Trusted)
}

func TestModelsAreEncoded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := predict.New([]string{"n"})
		class := rapid.SampledFrom([]string{"", "a", "b"})
		for i, d := range times().Draw(t, "times") {
			m.Learn(time.Unix(int64(i), 0), class.Draw(t, "class"), []float64{rapid.Float64().Draw(t, "n")}, d)
		}
		body, err := m.Encode()
		require.NoError(t, err)
		require.Less(t, len(body), 64<<10)
		read, err := predict.Decode(body)
		require.NoError(t, err)
		again, err := read.Encode()
		require.NoError(t, err)
		require.Equal(t, string(body), string(again))
		require.Equal(t, m.Expect("a", []float64{3}), read.Expect("a", []float64{3}))
	})
}

func TestUnreadableModelsAreRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{`:                                      "unexpected end",
		`{"version": 2}`:                         "invalid version 2: want 1",
		`{"version": 1, "all": {"sketch": [1]}}`: "pairs of bucket and count",
		`{"version": 1, "all": {"sketch": [1, 2, 1, 2]}}`:      "bucket 1 with count 2",
		`{"version": 1, "all": {"sketch": [100000, 1]}}`:       "bucket 100000",
		`{"version": 1, "all": {"regressed": true}}`:           "there is no regression",
		`{"version": 1, "classes": {"a": null}}`:               "a class is null",
		`{"version": 1, "all": {"regression": {"w": [1, 2]}}}`: "other features",
	} {
		_, err := predict.Decode([]byte(body))
		require.ErrorContains(t, err, want, body)
	}
	_, err := predict.Decode([]byte(`{"version": 1}`))
	require.NoError(t, err)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version": 1, "features": ["n"], "all": {"sketch": [1, 8], "regression": {"n": 20, "w": [1, 2], "p": [[1, 0], [0, 1]]}, "regressed": true}}`))
	f.Fuzz(func(_ *testing.T, body []byte) {
		if m, err := predict.Decode(body); err == nil {
			m.Learn(time.Unix(1, 0), "a", make([]float64, len(m.Features)), time.Second)
			m.Expect("a", make([]float64, len(m.Features)))
		}
	})
}
