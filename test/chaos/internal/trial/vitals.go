package trial

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/internal/lifecycle"
)

// Vitals are quantities that must not grow, at one moment. Daemons that do not answer are
// left out.
type Vitals struct {
	At          time.Duration // since the start of the run
	Daemons     int           // that answered
	Goroutines  float64       // of a daemon, on average
	MemoryMB    float64       // resident, of a daemon, on average
	Connections int           // of the fleet to the server; -1: it did not answer
	Found       found         `json:",omitempty"` // since the sample before
}

const (
	vitalsEvery   = 5 * time.Second
	vitalsTimeout = time.Second
)

// watch samples the vitals until ctx ends.
func (t *trial) watch(ctx context.Context) []Vitals {
	var list []Vitals
	last := map[string]map[string]float64{} // by URL, which changes with each start
	for lifecycle.Pause(ctx, vitalsEvery) == nil {
		list = append(list, t.vitals(ctx, last))
	}
	return list
}

func (t *trial) vitals(ctx context.Context, last map[string]map[string]float64) Vitals {
	v := Vitals{At: time.Since(t.start), Connections: -1, Found: found{}}
	for _, d := range t.rig.Daemons {
		url := d.URL()
		values, err := scrape(ctx, url+"/metrics")
		if err != nil || values["go_goroutines"] == 0 {
			continue
		}
		v.Found.since(values, last[url])
		last[url] = values
		v.Daemons++
		v.Goroutines += values["go_goroutines"]
		v.MemoryMB += values["process_resident_memory_bytes"] / (1 << 20)
	}
	if v.Daemons > 0 {
		v.Goroutines /= float64(v.Daemons)
		v.MemoryMB /= float64(v.Daemons)
	}
	var n int
	err := t.rig.Do(ctx, func(db *pgx.Conn) error {
		return db.QueryRow(ctx, `select count(*) from pg_stat_activity where datname = current_database() and application_name like 'tasker%'`).Scan(&n)
	})
	if err == nil {
		v.Connections = n
	}
	return v
}

// scrape reads all metrics, by their series.
func scrape(ctx context.Context, url string) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, vitalsTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	values := map[string]float64{}
	lines := bufio.NewScanner(io.LimitReader(res.Body, 4<<20))
	for lines.Scan() {
		line := lines.Text()
		if end := strings.LastIndexByte(line, ' '); end > 0 && line[0] != '#' {
			if values[line[:end]], err = strconv.ParseFloat(line[end+1:], 64); err != nil {
				return nil, fmt.Errorf("read %q: %w", line, err)
			}
		}
	}
	return values, lines.Err()
}

// trend compares the medians of the second and the last quarter of a run: the
// first is for filling pools and caches.
func trend(list []Vitals, of func(Vitals) float64) (before, after float64) {
	median := func(part []Vitals) float64 {
		var values []float64
		for _, v := range part {
			if x := of(v); x > 0 {
				values = append(values, x)
			}
		}
		if len(values) == 0 {
			return 0
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	n := len(list)
	return median(list[n/4 : n/2]), median(list[3*n/4:])
}
