package rest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/internal/places"
	"github.com/tasker-go/tasker/internal/store"
	"github.com/tasker-go/tasker/internal/telemetry"
)

const (
	eventStreamPath  = "/v1/events/stream"
	eventStreamMedia = "text/event-stream"
	// streamLife ends a stream; its client continues with another one from its last
	// event. So streams are spread over replicas again.
	streamLife = time.Hour
	// streamPoll is the fallback of the signals, streamBeat the interval of keep-alives,
	// streamWrite the time for a client to read a page.
	streamPoll  = 2 * time.Second
	streamBeat  = 15 * time.Second
	streamWrite = 10 * time.Second
	// streamPage is how many events are read at once.
	streamPage = 100
)

// eventStreams sends events to clients over open connections.
type eventStreams struct {
	*orchestratorAPI
	streamPlaces
	published func() <-chan struct{} // nil: only the poll
}

// streamPlaces bound the open streams of one kind, and count them. The kinds share places.
type streamPlaces struct {
	kind    string
	places  *places.Places
	metrics *telemetry.Metrics
}

// take takes a place, which leave returns.
func (p *streamPlaces) take(x *exchange) (leave func(), err error) {
	place, err := p.places.TryTake(x.holder(), 1)
	if err != nil {
		p.metrics.EventStreamsRefused.Inc()
		return nil, refusedPlace(err, 5*time.Second, "The limit of event streams is reached")
	}
	open := p.metrics.EventStreams.WithLabelValues(p.kind)
	open.Inc()
	return func() { open.Dec(); place.Leave() }, nil
}

// Why a stream has ended, as its metric says.
const (
	endLeft     = "left"
	endSlow     = "slow"
	endComplete = "complete"
	endStopping = "stopping"
	endError    = "error"
)

// ended counts the end of a stream. A connection that failed is the reason for whatever
// followed.
func (p *streamPlaces) ended(reason string, left error) {
	if left != nil {
		reason = endLeft
		if errors.Is(left, os.ErrDeadlineExceeded) {
			reason = endSlow
		}
	}
	p.metrics.EventStreamsEnded.WithLabelValues(p.kind, reason).Inc()
}

func (s *eventStreams) add() {
	addOwn[eventQuery, struct{}, string](s.api, operation{tag: "events", media: eventStreamMedia}.at(http.MethodGet, eventStreamPath, "stream-events",
		"Follow durable domain events (server-sent events); continues after Last-Event-ID"), s.serve)
}

// filter reads the start position: after the last event that the client has seen, else
// after the parameter after, else now.
func (s *eventStreams) filter(ctx context.Context, in *eventQuery, last string) (store.EventFilter, error) {
	if last != "" {
		in.After = last
	} else if in.After == "" {
		in.After = client.EventsFromNow
	}
	f, err := in.filter()
	if err != nil {
		return f, err
	}
	f.Limit = streamPage
	if in.After == client.EventsFromNow {
		f.After, err = through(ctx, s.guard, func(ctx context.Context) (int64, error) { return s.store.LastEvent(ctx, f.Namespace) })
	}
	return f, err
}

func (s *eventStreams) serve(x *exchange, in *eventQuery) error {
	leave, err := s.take(x)
	if err != nil {
		return err
	}
	defer leave()
	ctx := x.request.Context()
	f, err := s.filter(ctx, in, x.request.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	w := newStream(x)
	w.place(f.After) // one that is cut off before the first event misses none
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for x.left == nil && s.sendNew(ctx, &f, w, beat.C) {
	}
	reason := endLeft
	if s.stopping.Err() != nil {
		reason = endStopping
	}
	s.ended(reason, x.left)
	return nil
}

// sendNew sends new events and waits until there may be more; false: the stream ends.
func (s *eventStreams) sendNew(ctx context.Context, f *store.EventFilter, w *streamWriter, beat <-chan time.Time) bool {
	var published <-chan struct{}
	if s.published != nil {
		published = s.published() // before the look
	}
	page, err := through(ctx, s.guard, func(ctx context.Context) (store.EventPage, error) { return s.store.Events(ctx, *f) })
	switch {
	case err == nil:
		w.events(each(page.Events, ShownEvent))
		if f.After = page.Next; page.More || w.x.left != nil {
			return true
		}
	case ctx.Err() == nil && !errors.Is(err, context.Canceled):
		s.log.Warn("a stream of events waits for the database", zap.Error(err))
		published = nil // not before the poll
	}
	poll := time.NewTimer(streamPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.stopping.Done():
			return false
		case <-beat:
			if w.place(f.After); w.x.left != nil { // what was not of its filter is not read again
				return false
			}
		case <-published:
			return true
		case <-poll.C:
			return true
		}
	}
}

// streamWriter writes to a client over an open connection.
type streamWriter struct {
	x       *exchange
	control *http.ResponseController
}

// newStream begins the answer. What was read for it so far is not held while the stream is open.
func newStream(x *exchange) *streamWriter {
	x.answers.giveBack()
	h := x.Header()
	h.Set("Content-Type", eventStreamMedia)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must not wait for more
	w := &streamWriter{x: x, control: http.NewResponseController(x.ResponseWriter)}
	w.send([]byte("retry: 2000\n\n"))
	return w
}

// place tells a client where to continue; it is no event.
func (w *streamWriter) place(position int64) {
	w.send([]byte("id: " + strconv.FormatInt(position, 10) + "\n\n"))
}

func (w *streamWriter) events(list []client.Event) {
	if len(list) == 0 {
		return
	}
	var b bytes.Buffer
	for i := range list {
		writeEvent(&b, oneWord(list[i].Name), strconv.FormatInt(list[i].Position, 10), &list[i])
	}
	w.send(b.Bytes())
}

// send has its own deadline: the server's is for ordinary answers. It sends nothing with
// credentials that are not good any more, which end the stream.
func (w *streamWriter) send(text []byte) {
	if err := w.x.stillGood(); err != nil {
		w.x.left = err
		return
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(streamWrite)) // a recorder in a test has none
	_, _ = w.x.Write(text)                                      // never an error, see there
	if err := w.control.Flush(); err != nil && w.x.left == nil && !errors.Is(err, http.ErrNotSupported) {
		w.x.left = err
	}
}

// oneWord removes line breaks from a name.
func oneWord(name string) string {
	return string(bytes.Map(func(r rune) rune {
		if r < ' ' {
			return '_'
		}
		return r
	}, []byte(name)))
}
