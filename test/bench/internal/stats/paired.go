package stats

import "math"

// Ratio is a ratio with its confidence interval of 95 %.
type Ratio struct{ Value, Low, High float64 }

// t975 are the 97.5 % quantiles of Student's t by degrees of freedom, from 1 on.
var t975 = []float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
	2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}

// Paired is the geometric mean of ours[i] / theirs[i] of two pairs or more, all positive.
// The interval is that of the mean of the logarithms; beyond 31 pairs it is a little wide.
func Paired(ours, theirs []float64) Ratio {
	n := len(ours)
	logs, mean := make([]float64, n), 0.0
	for i := range ours {
		logs[i] = math.Log(ours[i] / theirs[i])
		mean += logs[i] / float64(n)
	}
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	half := t975[min(n-1, len(t975))-1] * math.Sqrt(squares/float64(n-1)/float64(n))
	return Ratio{math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half)}
}

// PairedSets is Paired of the geometric means of two sets or more: pairs of one set may differ in the same way.
func PairedSets(ours, theirs [][]float64) Ratio {
	return Paired(geometricMeans(ours), geometricMeans(theirs))
}

func geometricMeans(sets [][]float64) []float64 {
	means := make([]float64, len(sets))
	for i, set := range sets {
		sum := 0.0
		for _, x := range set {
			sum += math.Log(x)
		}
		means[i] = math.Exp(sum / float64(len(set)))
	}
	return means
}
