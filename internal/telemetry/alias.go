package telemetry

import (
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Aliased adds the metrics of g under their names in other products: the whole metric (name),
// its series of one label value, without that label (name{label=value}), those of several
// values with it (name{label=one|other}), or any of them in another unit (name*1000). Some of these names lack a unit or have one that is no base unit, so that
// they are for existing dashboards and alerts alone.
func Aliased(g prometheus.Gatherer) prometheus.Gatherer {
	aliases := map[string][]string{}
	for _, e := range Catalogue() {
		aliases[e.Name] = e.Aliases
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather()
		for _, f := range families { // the slice as it is now
			for _, alias := range aliases[f.GetName()] {
				if also := renamed(f, alias); len(also.GetMetric()) > 0 {
					families = append(families, also)
				}
			}
		}
		slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
		return families, err
	})
}

// renamed is a family under an alias.
func renamed(f *dto.MetricFamily, alias string) *dto.MetricFamily {
	name, factor, _ := strings.Cut(alias, "*")
	name, only, _ := strings.Cut(strings.TrimSuffix(name, "}"), "{")
	label, listed, _ := strings.Cut(only, "=")
	values := strings.Split(listed, "|")
	by, err := strconv.ParseFloat(factor, 64)
	if err != nil {
		by = 1
	}
	help := f.GetHelp() + " Another name of " + f.GetName() + "."
	also := &dto.MetricFamily{Name: &name, Help: &help, Type: f.Type}
	for _, m := range f.GetMetric() {
		wanted := func(l *dto.LabelPair) bool { return l.GetName() == label && slices.Contains(values, l.GetValue()) }
		labels := m.GetLabel()
		if only != "" && !slices.ContainsFunc(labels, wanted) {
			continue
		}
		if len(values) == 1 {
			labels = slices.DeleteFunc(slices.Clone(labels), wanted)
		}
		also.Metric = append(also.Metric, scaled(m, labels, by))
	}
	return also
}

// scaled is a series with other labels and in another unit.
func scaled(m *dto.Metric, labels []*dto.LabelPair, by float64) *dto.Metric {
	also := &dto.Metric{Label: labels}
	times := func(v float64) *float64 { v *= by; return &v }
	switch {
	case m.GetCounter() != nil:
		also.Counter = &dto.Counter{Value: times(m.GetCounter().GetValue())}
	case m.GetGauge() != nil:
		also.Gauge = &dto.Gauge{Value: times(m.GetGauge().GetValue())}
	case m.GetHistogram() != nil:
		h := m.GetHistogram()
		also.Histogram = &dto.Histogram{SampleCount: h.SampleCount, SampleSum: times(h.GetSampleSum())}
		for _, b := range h.GetBucket() {
			also.Histogram.Bucket = append(also.Histogram.Bucket,
				&dto.Bucket{CumulativeCount: b.CumulativeCount, UpperBound: times(b.GetUpperBound())})
		}
	}
	return also
}
