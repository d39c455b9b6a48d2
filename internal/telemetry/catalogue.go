package telemetry

import (
	"reflect"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Entry is a metric of the catalogue.
type Entry struct {
	Name, Kind, Unit, Help string
	Labels                 []string
	// Values are those of each label; nil where they are open, and bounded by what a fleet
	// runs: its namespaces, queues, loops.
	Values  [][]string
	Buckets []float64
	Aliases []string // as Aliased reads them
}

// Catalogue lists every metric of Metrics, in the order of its fields.
func Catalogue() []Entry {
	fields := reflect.TypeFor[Metrics]()
	entries := make([]Entry, 0, fields.NumField())
	for i := range fields.NumField() {
		tag := fields.Field(i).Tag
		if tag.Get("metric") == "" {
			continue // it is behind all metrics
		}
		e := Entry{Name: tag.Get("metric"), Kind: tag.Get("kind"), Help: tag.Get("help"),
			Labels: list(tag.Get("labels")), Aliases: strings.Fields(tag.Get("alias"))}
		e.Values = make([][]string, len(e.Labels))
		for j, values := range list(tag.Get("values")) {
			if values != "*" {
				e.Values[j] = strings.Split(values, "|")
			}
		}
		if e.Kind == "" {
			e.Kind = kindOf(fields.Field(i).Type)
		}
		if e.Kind == histogram {
			e.Buckets = buckets(tag.Get("buckets"))
		}
		e.Unit = unitOf(e.Name)
		entries = append(entries, e)
	}
	return entries
}

const (
	counter   = "counter"
	gauge     = "gauge"
	histogram = "histogram"
)

func kindOf(t reflect.Type) string {
	name := t.String() // *prometheus.CounterVec, prometheus.Counter
	for _, kind := range []string{counter, gauge} {
		if strings.Contains(strings.ToLower(name), kind) {
			return kind
		}
	}
	return histogram
}

// unitOf reads the unit off a name, where those who query look for it too.
func unitOf(name string) string {
	for _, unit := range []string{"seconds", "bytes"} {
		if strings.HasSuffix(strings.TrimSuffix(name, "_total"), "_"+unit) {
			return unit
		}
	}
	return ""
}

// Known makes the series of counters whose only open label is label, which has the value
// from now on: increase() sees the first event only of a series that was scraped before.
func (m *Metrics) Known(label, value string) {
	for i, e := range Catalogue() {
		if slices.Contains(e.Labels, label) {
			m.begin(i, &e, label, value)
		}
	}
}

// begin makes the series of a counter of which all values are known.
func (m *Metrics) begin(field int, e *Entry, label, value string) {
	vec, ok := reflect.ValueOf(m).Elem().Field(field).Interface().(*prometheus.CounterVec)
	if !ok {
		return
	}
	series := [][]string{nil}
	for i, values := range e.Values {
		if e.Labels[i] == label {
			values = []string{value}
		}
		var longer [][]string // none where the label is open
		for _, begun := range series {
			for _, v := range values {
				longer = append(longer, append(slices.Clone(begun), v))
			}
		}
		series = longer
	}
	for _, values := range series {
		vec.WithLabelValues(values...)
	}
}

// list splits a tag; an empty one has no elements.
func list(tag string) []string {
	if tag == "" {
		return nil
	}
	return strings.Split(tag, ",")
}
