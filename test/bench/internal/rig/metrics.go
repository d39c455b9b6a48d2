package rig

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/test/fleet"
)

// Metrics are a daemon's /metrics: a value per name with labels.
type Metrics map[string]float64

// ParseMetrics reads the text format of Prometheus and ignores unknown lines.
func ParseMetrics(text string) Metrics {
	m := Metrics{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[at+1:], 64); err == nil {
			m[line[:at]] = v
		}
	}
	return m
}

// Sum adds up the values of a metric over all its labels, or over those that contain
// every one of the texts, such as flow="claim".
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
	for key, v := range m {
		found, inner, _ := strings.Cut(key, "{")
		if found != name {
			continue
		}
		fits := true
		for _, l := range labels {
			fits = fits && strings.Contains(inner, l)
		}
		if fits {
			sum += v
		}
	}
	return sum
}

// Has reports whether the metric is there.
func (m Metrics) Has(name string) bool {
	for key := range m {
		if found, _, _ := strings.Cut(key, "{"); found == name {
			return true
		}
	}
	return false
}

// Scrape reads the metrics of processes, added up.
func Scrape(ctx context.Context, processes []*fleet.Process) (Metrics, error) {
	sum := Metrics{}
	for _, p := range processes {
		raw, err := client.New(client.Config{BaseURL: p.URL, Timeout: 10 * time.Second}).Metrics(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the metrics of %s: %w", p.Name, err)
		}
		for k, v := range ParseMetrics(string(raw)) {
			sum[k] += v
		}
	}
	return sum, nil
}
