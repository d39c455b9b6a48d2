package rest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/attemptlog"
	"github.com/tasker-go/tasker/internal/orchestration"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/workflow"
)

const (
	// logChunks is how many chunks of lines are read at once; one has at most 64 KiB before compression.
	logChunks = 32
	// logScan bounds the lines that one page looks at, in bytes: then it ends short.
	logScan = 8 << 20
	// logPoll is how often a stream looks for new lines, logEnds how often whether its task has ended.
	logPoll = 250 * time.Millisecond
	logEnds = time.Second
	// logSettled is how long a stream waits for lines after the end of its task: a worker writes the
	// last ones beside its report.
	logSettled = 2 * time.Second
	// logSkew is how far the clocks of two workers may differ for a look to find new lines at once; each
	// logFull-th look finds those beyond it, too.
	logSkew = time.Minute
	logFull = 20
)

// logRoutes show what the handlers of a task have logged.
type logRoutes struct {
	*orchestratorAPI
	streamPlaces
}

// logSelection selects lines.
type logSelection struct {
	UUID    uuid.UUID `path:"uuid" format:"uuid"`
	Step    string    `query:"step" doc:"Of this step, by its name"`
	Attempt number    `query:"attempt" within:"0,32767,0" doc:"Of the attempts with this number; 0: of all"`
	Level   string    `query:"level" doc:"Least level: debug, info, warn or error"`
	Text    string    `query:"text" doc:"That have this in their text, in whatever case"`
}

type logQuery struct {
	logSelection
	After string `query:"after" doc:"next of the page before"`
	Limit number `query:"limit" within:"1,5000,500" doc:"Lines of a page, 1 to 5000; 500 when absent"`
}

func (l *logRoutes) add() {
	op := operation{tag: "tasks"}
	add(l.api, op.at(http.MethodGet, "/v1/tasks/{uuid}/logs", "get-task-logs", "List what the handlers of a task have logged, the oldest first"), l.list)
	addOwn[logSelection, struct{}, string](l.api, operation{tag: "tasks", media: eventStreamMedia}.at(http.MethodGet, "/v1/tasks/{uuid}/logs/stream", "stream-task-logs",
		"Follow what the handlers of a task log, until it has ended (server-sent events); continues after Last-Event-ID"), l.serve)
}

// logReader reads lines of a task.
type logReader struct {
	store  Store
	log    *zap.Logger
	task   *store.Task
	query  store.LogQuery
	step   string // only of it; "": of all
	level  attemptlog.Level
	text   string // in lower case
	reader *attemptlog.Reader
	next   map[int64]int64 // by token: the number of the line after those read
	bytes  int64           // read so far, before compression
}

// reading checks a selection.
func (l *logRoutes) reading(ctx context.Context, in *logSelection) (*logReader, error) {
	var c checked
	c.text("step", in.Step, orchestration.MaxNameLength)
	c.text("text", in.Text, 1_000)
	level, err := attemptlog.ParseLevel(cmp.Or(in.Level, attemptlog.Debug.String()))
	if err != nil {
		c.add("%v", err)
	}
	if err := c.err(); err != nil {
		return nil, err
	}
	task, err := l.readTask(ctx, in.UUID)
	if err != nil {
		return nil, err
	}
	r := &logReader{store: l.store, log: l.Server.log, task: task, step: in.Step, level: level, text: strings.ToLower(in.Text), reader: attemptlog.NewReader(),
		next: map[int64]int64{}, query: store.LogQuery{Task: in.UUID, Levels: level.Bits(), Limit: logChunks}}
	if in.Attempt != 0 {
		r.query.Attempt = new(int(in.Attempt))
	}
	if in.Step != "" {
		no, known := stepNamed(task, in.Step)
		if !known {
			return nil, notFound(fmt.Sprintf("The task has no step %q", in.Step))
		}
		r.query.Step = &no
	}
	return r, nil
}

// stepNamed finds a step by its name, also one that was created at run time, and one that does not
// exist yet.
func stepNamed(t *store.Task, name string) (no int, known bool) {
	for i := range t.Steps {
		if t.Steps[i].Name == name {
			return t.Steps[i].No, true
		}
	}
	no = slices.IndexFunc(t.Plan.Steps, func(s workflow.PlanStep) bool { return s.Name == name })
	return no, no >= 0
}

// logCursor is the place of a line: after so many lines behind the chunk.
type logCursor struct {
	store.LogPlace
	skip int   // lines of the next chunk that were shown
	next int64 // number of the line after them
}

var logCursorForm = regexp.MustCompile(`^\d{1,17}\.\d{1,19}\.\d{1,18}\.\d{1,9}\.\d{1,18}$`)

func (c logCursor) String() string {
	return fmt.Sprintf("%d.%d.%d.%d.%d", max(c.At.UnixMicro(), 0), c.Token, c.First+1, c.skip, c.next)
}

func parseLogCursor(text string) (c logCursor, err error) {
	var micros int64
	if text == "" {
		return c, nil
	}
	if !logCursorForm.MatchString(text) {
		return c, badRequest("after must be next of a page")
	}
	if _, err := fmt.Sscanf(text, "%d.%d.%d.%d.%d", &micros, &c.Token, &c.First, &c.skip, &c.next); err != nil {
		return c, badRequest("after must be next of a page")
	}
	c.At, c.First = time.UnixMicro(micros), c.First-1
	return c, nil
}

func (l *logRoutes) list(ctx context.Context, in *logQuery) (*client.LogPage, error) {
	at, err := parseLogCursor(in.After)
	if err != nil {
		return nil, err
	}
	r, err := l.reading(ctx, &in.logSelection)
	if err != nil {
		return nil, err
	}
	page, err := r.page(ctx, at, int(in.Limit))
	if err == nil {
		err = answers(ctx, r.bytes)
	}
	return page, err
}

// page reads up to limit lines behind a place.
func (r *logReader) page(ctx context.Context, at logCursor, limit int) (*client.LogPage, error) {
	page := &client.LogPage{Lines: []client.LogLine{}}
	r.query.After = at.LogPlace
	for skip := at.skip; ; {
		chunks, _, err := r.store.Logs(ctx, r.query)
		if err != nil {
			return nil, err
		}
		for i := range chunks {
			c := &chunks[i]
			if skip > 0 {
				r.next[c.Token] = at.next
			}
			lines := r.lines(c, skip, page)
			if room := limit - len(page.Lines); len(lines) > room {
				cut := lines[room]
				page.Lines = append(page.Lines, lines[:room]...)
				page.Next = logCursor{LogPlace: r.query.After, skip: int(cut.Line - c.First), next: cut.Line - cut.DroppedBefore}.String()
				return r.sorted(page), nil
			}
			page.Lines, skip = append(page.Lines, lines...), 0
			r.query.After = store.LogPlace{At: c.At, Token: c.Token, First: c.First}
		}
		switch {
		case len(chunks) < r.query.Limit:
			return r.sorted(page), nil
		case len(page.Lines) >= limit || r.bytes >= logScan:
			page.Next = logCursor{LogPlace: r.query.After}.String()
			return r.sorted(page), nil
		}
	}
}

// sorted puts the lines of steps that ran beside each other into the order of their times.
func (r *logReader) sorted(page *client.LogPage) *client.LogPage {
	slices.SortStableFunc(page.Lines, func(a, b client.LogLine) int { return a.At.Compare(b.At) })
	return page
}

// lines are those of a chunk that are selected, but for the first ones.
func (r *logReader) lines(c *store.LogChunk, skip int, page *client.LogPage) (shown []client.LogLine) {
	dropped := int64(0)
	if after, known := r.next[c.Token]; known || c.First == 0 {
		dropped = max(c.First+int64(skip)-after, 0)
	}
	r.next[c.Token] = c.First + int64(c.Lines)
	name := cmp.Or(c.StepName, r.task.StepName(c.Step))
	if len(c.Content) == 0 || r.step != "" && name != r.step {
		return nil
	}
	lines, err := r.reader.Read(&c.Chunk)
	if err != nil {
		r.log.Warn("lines of an attempt cannot be read and are left out", zap.Stringer("task_uuid", c.Task), zap.String("step_name", name), zap.Error(err))
		page.Unreadable++
		return nil
	}
	for i := skip; i < len(lines); i++ {
		line := &lines[i]
		r.bytes += int64(len(line.Text) + len(line.Fields) + usualLine)
		if line.Level < r.level || r.text != "" && !strings.Contains(strings.ToLower(line.Text), r.text) {
			continue
		}
		shown = append(shown, client.LogLine{At: line.At, Level: line.Level.String(), Text: line.Text, Fields: line.Fields, StepName: name, StepNo: c.Step,
			Attempt: c.Attempt, Token: c.Token, Line: line.Number, DroppedBefore: dropped})
		dropped = 0
	}
	return shown
}

// usualLine is the size of a line besides its text and fields.
const usualLine = 150

var snapshotForm = regexp.MustCompile(`^\d{1,20}:\d{1,20}:[0-9,]*$`)

// serve sends the lines of a task, and those that follow.
func (l *logRoutes) serve(x *exchange, in *logSelection) error {
	ctx := x.request.Context()
	r, err := through(ctx, l.guard, func(ctx context.Context) (*logReader, error) { return l.reading(ctx, in) })
	if err != nil {
		return err
	}
	last := x.request.Header.Get("Last-Event-ID")
	if last != "" && (len(last) > 16<<10 || !snapshotForm.MatchString(last)) {
		return badRequest("Last-Event-ID must be an id of this stream")
	}
	leave, err := l.take(x)
	if err != nil {
		return err
	}
	defer leave()
	s := logStream{l, r, newStream(x), last}
	l.ended(s.run(ctx), x.left)
	return nil
}

// logStream is one open connection.
type logStream struct {
	*logRoutes
	*logReader
	w     *streamWriter
	since string // the snapshot up to which it has read
}

// run sends until the stream ends, and returns why.
func (s *logStream) run(ctx context.Context) (reason string) {
	poll, beat, life := time.NewTicker(logPoll), time.NewTicker(streamBeat), time.NewTimer(streamLife)
	defer poll.Stop()
	defer beat.Stop()
	defer life.Stop()
	var looked, ended time.Time // by the local clock
	var recent time.Time
	for look := 0; ; look++ {
		s.query.Recent = time.Time{}
		if look%logFull > 0 {
			s.query.Recent = recent.Add(-logSkew)
		}
		newest, at, err := s.send(ctx)
		if look == 0 && s.task.State.Terminal() && at.Sub(s.task.UpdatedAt) >= logSettled {
			ended = time.Now().Add(-logSettled)
		}
		if newest.After(recent) {
			recent = newest
		}
		switch {
		case err != nil && ctx.Err() == nil:
			s.Server.log.Warn("a stream of lines waits for the database", zap.Error(err))
		case s.w.x.left != nil:
			return endLeft
		case !ended.IsZero() && time.Since(ended) >= logSettled:
			s.w.name("end", "", struct{}{})
			return endComplete
		case ended.IsZero() && time.Since(looked) >= logEnds:
			looked = time.Now()
			ends, err := s.store.TaskEnds(ctx, []uuid.UUID{s.task.UUID})
			if err == nil && len(ends) > 0 {
				ended = looked
			}
		}
		select {
		case <-ctx.Done():
			return endLeft
		case <-s.stopping.Done():
			return endStopping
		case <-life.C:
			return endComplete
		case <-beat.C:
			s.w.send([]byte(": beat\n\n"))
		case <-poll.C:
		}
	}
}

// send sends what has become visible since the last time. It returns when the newest lines began, by
// the clocks of workers, and what time it is, by that of the database.
func (s *logStream) send(ctx context.Context) (newest, at time.Time, err error) {
	s.query.Since, s.query.Upto, s.query.After = s.since, "", store.LogPlace{}
	for s.w.x.left == nil {
		type read struct {
			chunks []store.LogChunk
			seen   store.Seen
		}
		got, err := through(ctx, s.guard, func(ctx context.Context) (r read, err error) {
			r.chunks, r.seen, err = s.store.Logs(ctx, s.query)
			return r, err
		})
		if err != nil {
			return newest, at, err
		}
		at = got.seen.At
		page := client.LogPage{Lines: []client.LogLine{}}
		for i := range got.chunks {
			c := &got.chunks[i]
			page.Lines = append(page.Lines, s.lines(c, 0, &page)...)
			s.query.After = store.LogPlace{At: c.At, Token: c.Token, First: c.First}
			newest = c.At
		}
		s.query.Upto = got.seen.Snapshot
		last := len(got.chunks) < s.query.Limit
		id := ""
		if last {
			id = got.seen.Snapshot // a stream that breaks before it begins with these again
		}
		var text bytes.Buffer
		if len(page.Lines) > 0 || page.Unreadable > 0 {
			writeEvent(&text, "lines", id, s.sorted(&page))
		} else if last && s.since == "" {
			fmt.Fprintf(&text, "id: %s\n\n", id)
		}
		if text.Len() > 0 {
			s.w.send(text.Bytes())
		}
		if last {
			s.since = got.seen.Snapshot
			return newest, at, nil
		}
	}
	return newest, at, nil // the client has left
}
