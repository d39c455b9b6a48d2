package main

import (
	"regexp"
	"strconv"
	"strings"
)

// figure is one line of a daemon's metrics, in the text format of Prometheus.
type figure struct {
	name, labels string
	value        float64
}

// figures are the metrics of one daemon, of which a screen shows some.
type figures []figure

var figureLine = regexp.MustCompile(`^(tasker_[a-z_]+)(?:\{(.*)\})? (\S+)$`)

func parseMetrics(text []byte) figures {
	list := figures{} // not nil: the daemon has answered
	for line := range strings.Lines(string(text)) {
		m := figureLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		if value, err := strconv.ParseFloat(m[3], 64); err == nil {
			list = append(list, figure{m[1], m[2], value})
		}
	}
	return list
}

// total adds up what has a name and, where that is not empty, a label.
func (s figures) total(name, label string) (sum float64) {
	for _, x := range s {
		if x.name == name && strings.Contains(x.labels, label) {
			sum += x.value
		}
	}
	return sum
}

var namespaceLabel = regexp.MustCompile(`(?:^|,)namespace=("(?:[^"\\]|\\.)*")`)

// byNamespace has what has a name, by its namespace.
func (s figures) byNamespace(name string) map[string]float64 {
	values := map[string]float64{}
	for _, x := range s {
		if m := namespaceLabel.FindStringSubmatch(x.labels); x.name == name && m != nil {
			if namespace, err := strconv.Unquote(m[1]); err == nil {
				values[namespace] += x.value
			}
		}
	}
	return values
}
