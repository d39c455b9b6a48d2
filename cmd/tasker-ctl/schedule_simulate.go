package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/order"
	"github.com/tasker-go/tasker/internal/order/simulate"
	"github.com/tasker-go/tasker/internal/store"
)

const (
	// maxRecords bounds a recording: a replay keeps it in memory.
	maxRecords = 1_000_000
	// recordingTimeout bounds reading one unless --timeout says otherwise.
	recordingTimeout = 10 * time.Minute
	// tenantsShown are those with the most work.
	tenantsShown = 10
)

// simulation is the arguments of `schedule simulate`.
type simulation struct {
	app                   *app
	database              *databaseOptions
	namespace, callable   string
	from, to              *client.Time
	tenantTag, tenantPath string
	features              []string
	class                 string
	permits, recorded     int
	policies              []string
	ageing, claim         time.Duration
	file, save, svg       string
	records               []simulate.Record
	lines                 []simulate.Line
}

// forecast is the answer.
type forecast struct {
	Steps    int                 `json:"steps"`
	Permits  int                 `json:"permits"`
	Ageing   float64             `json:"ageing_seconds"`
	Policies []*simulate.Outcome `json:"policies"`
}

func (a *app) scheduleSimulate() command {
	s := &simulation{app: a, database: &databaseOptions{app: a}, policies: policyWords()}
	return command{
		use: "simulate", short: "Forecast how long steps would wait under each policy of order",
		long: `Replays what the ledger has recorded of a line under each policy of order, and
shows how long its steps would have waited. It changes nothing and is about the
order of waiting steps, not about calendars. It reads the database itself: the
executions of the tasks of --namespace that were created between --since and
--until, up to a million. Expected times are learned from what had ended before.
See docs/use/order.md.`,
		example: "  tasker-ctl schedule simulate -n payments --callable charge --permits 8 --since 2h --svg forecast.svg\n" +
			"  tasker-ctl schedule simulate -n payments --permits 8 --since 24h --save day.jsonl\n" +
			"  tasker-ctl schedule simulate --file day.jsonl --permits 12 --recorded-permits 8 --ageing 1m --policies fifo,shortest_expected",
		flags: all(
			opt(&s.permits, "permits", "how many steps are worked on at once", needed, atLeastOne),
			opt(&s.recorded, "recorded-permits", "how many were while it was recorded (default --permits)", atLeastOne),
			opt(&s.policies, "policies", "which policies", withCommas),
			opt(&s.ageing, "ageing", "steps that have waited for it go first; 0: none", notNegative),
			opt(&s.claim, "claim", "how long a claim takes", notNegative),
			a.namespace(&s.namespace, "namespace of the tasks"),
			calledFlag(&s.callable, "only steps that call this"),
			opt(&s.from, "since", "tasks created since a `time` (RFC 3339) or within an age (24h) (default 1h)", also("from")),
			opt(&s.to, "until", "and before a `time` or an age (default now)", also("to")),
			opt(&s.tenantTag, "tenant-tag", "the tenant is what follows this `prefix` in a tag of the task"),
			opt(&s.tenantPath, "tenant-path", "else the text at this `path` in its context, such as shop.id"),
			opt(&s.features, "features", "learn times by these numbers of the context, as policy set declares them", withCommas),
			opt(&s.class, "class", "and apart for each text at this `path` in it"),
			opt(&s.file, "file", "replay this recording, JSON lines, - for stdin, in place of the database's"),
			opt(&s.save, "save", "write the recording to a `file`"),
			opt(&s.svg, "svg", "write the picture to a `file`"),
			s.database.flags(),
		),
		check: func([]string) error { return s.check() },
		local: func(ctx context.Context, _ []string) error { return s.run(ctx) },
	}
}

func (s *simulation) check() error {
	for _, name := range s.policies {
		p, err := order.ParsePolicy(name)
		if err != nil {
			return usageError{err}
		}
		s.lines = append(s.lines, simulate.Line{Policy: p, Permits: s.permits, Ageing: s.ageing, Claim: s.claim})
	}
	if (s.file == "") == (s.namespace == "") {
		return usagef("schedule simulate needs either --namespace or --file")
	}
	return nil
}

func (s *simulation) run(ctx context.Context) error {
	read := s.readFile
	if s.file == "" {
		read = func() error { return s.database.on(ctx, recordingTimeout, false, s.readLedger) }
	}
	if err := read(); err != nil {
		return err
	}
	if s.save != "" {
		var b bytes.Buffer
		for i := range s.records {
			line, err := marshal(&s.records[i], "")
			if err != nil {
				return fmt.Errorf("write the recording: %w", err)
			}
			b.Write(line)
		}
		if err := s.app.writeDocument(s.save, b.Bytes()); err != nil {
			return err
		}
	}
	jobs, err := simulate.Jobs(s.records, cmp.Or(s.recorded, s.permits))
	if err != nil {
		return usageError{err}
	}
	f := forecast{Steps: len(jobs), Permits: s.permits, Ageing: s.ageing.Seconds(), Policies: []*simulate.Outcome{}}
	for _, l := range s.lines {
		o, err := l.Replay(jobs)
		if err != nil {
			return usageError{err}
		}
		f.Policies = append(f.Policies, o)
	}
	if s.svg != "" {
		if err := s.app.writeDocument(s.svg, f.svg()); err != nil {
			return err
		}
	}
	return s.app.emit(f, func() { s.app.showForecast(f) })
}

// readLedger reads the recording page by page.
func (s *simulation) readLedger(ctx context.Context, url string) error {
	db, err := store.Open(ctx, store.Options{URL: url, MaxConns: 1})
	if err != nil {
		return err
	}
	defer db.Close()
	now := s.app.now()
	filter := store.RecordingFilter{
		Namespace: s.namespace, Handler: s.callable, From: now.Add(-time.Hour), To: now,
		TenantTag: s.tenantTag, Features: s.features, Class: s.class,
	}
	if s.from != nil {
		filter.From = s.from.Time
	}
	if s.to != nil {
		filter.To = s.to.Time
	}
	if s.tenantPath != "" {
		filter.TenantPath = strings.Split(s.tenantPath, ".")
	}
	for {
		page, next, err := db.Recording(ctx, filter)
		if err != nil || next == uuid.Nil {
			return err
		}
		if s.records = append(s.records, page...); len(s.records) > maxRecords {
			return hinted{usagef("there are more than %d executions", maxRecords), "give a shorter time: --since, --until"}
		}
		filter.After = next
	}
}

// readFile reads a recording that was saved.
func (s *simulation) readFile() error {
	in := s.app.stdin
	if s.file != "-" {
		f, err := os.Open(s.file)
		if err != nil {
			return usageError{fmt.Errorf("read the recording: %w", err)}
		}
		defer func() { _ = f.Close() }() // it was only read
		in = f
	}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		var r simulate.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return usagef("read the recording: line %d: %v", n, err)
		}
		if s.callable != "" && r.Handler != s.callable {
			continue
		}
		if s.records = append(s.records, r); len(s.records) > maxRecords {
			return usagef("there are more than %d executions", maxRecords)
		}
	}
	if err := lines.Err(); err != nil {
		return usageError{fmt.Errorf("read the recording: %w", err)}
	}
	return nil
}

// showForecast draws a table, bars of the mean and the 99th percentile, and the tenants.
func (a *app) showForecast(f forecast) {
	a.printf("%s, %s at once\n\nfrom the arrival in the line to the end of the handler:\n", counted(f.Steps, "step"), counted(f.Permits, "step"))
	times := a.newTable("POLICY", "MEAN", "P50", "P95", "P99", "LONGEST", "MEAN WAIT", "LONGEST WAIT", "LATE", "FAIRNESS")
	bars, tenants := a.newPairs(), a.newTable("POLICY", "TENANT", "STEPS", "OF WORK", "OF WAITING", "MEAN", "P99", "STRETCH")
	longest, many := f.longest(), false
	for _, o := range f.Policies {
		t := o.Flow
		times.row(o.Policy, seconds(t.Mean), seconds(t.P50), seconds(t.P95), seconds(t.P99), seconds(t.Longest), seconds(o.Wait.Mean), seconds(o.Wait.Longest),
			o.Late, fmt.Sprintf("%.2f", o.Fairness))
		for _, b := range barsOf(o) {
			bars.row(o.Policy, b.name, strings.Repeat("█", int(barWidth*ratioOf(b.time, longest)+0.5))+" "+seconds(b.time))
		}
		many = many || len(o.Tenants) > 1
		for i := range o.Tenants[:min(len(o.Tenants), tenantsShown)] {
			t := &o.Tenants[i]
			tenants.row(o.Policy, t.Name, t.Steps, fmt.Sprintf("%.0f%%", 100*t.Share), fmt.Sprintf("%.0f%%", 100*t.WaitShare), seconds(t.Flow.Mean), seconds(t.Flow.P99),
				fmt.Sprintf("%.1f", t.Stretch))
		}
	}
	times.write(a.stdout)
	a.printf("\n")
	bars.write(a.stdout)
	if many {
		a.printf("\n")
		tenants.write(a.stdout)
	}
}

type timeBar struct {
	name string
	time time.Duration
}

func barsOf(o *simulate.Outcome) []timeBar {
	return []timeBar{{"mean", o.Flow.Mean}, {"p99", o.Flow.P99}}
}

// longest is the time of the longest bar.
func (f forecast) longest() (t time.Duration) {
	for _, o := range f.Policies {
		for _, b := range barsOf(o) {
			t = max(t, b.time)
		}
	}
	return t
}

func ratioOf(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

// svg draws the bars as a picture.
func (f forecast) svg() []byte {
	const left, width, row = 220, 460, 26
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n", left+width+100, row*(2*len(f.Policies)+2))
	fmt.Fprintf(&b, "<text x=\"8\" y=\"18\">%s, %s at once: from the arrival in the line to the end of the handler</text>\n", counted(f.Steps, "step"), counted(f.Permits, "step"))
	y, longest := row, f.longest()
	for _, o := range f.Policies {
		for i, bar := range barsOf(o) {
			length := width * ratioOf(bar.time, longest)
			fmt.Fprintf(&b, "<text x=\"8\" y=\"%d\">%s, %s</text>\n", y+17, html.EscapeString(string(o.Policy)), bar.name)
			fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"20\" fill=\"%s\"/>\n", left, y+2, length, []string{"#2e7d32", "#90a4ae"}[i])
			fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", left+length+6, y+17, seconds(bar.time))
			y += row
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
