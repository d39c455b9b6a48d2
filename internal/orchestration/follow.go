package orchestration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tasker-go/tasker/internal/breaker"
	"github.com/tasker-go/tasker/internal/lifecycle"
	"github.com/tasker-go/tasker/internal/store"
)

const (
	// followPoll is the fallback of the signals: daemons that do not know yet that
	// something is followed send none.
	followPoll = 2 * time.Second
	// followFor is how long a scope is followed without a renewal, followKeep the interval
	// of renewals.
	followFor  = time.Minute
	followKeep = 20 * time.Second
	// followBack is the greatest age of a place from which a client continues, and keptFor
	// how long transitions are kept after they have become visible.
	followBack = 100 * time.Second
	keptFor    = 2 * time.Minute
	// followPatience bounds the wait for transactions that do not record transitions.
	followPatience = 5 * time.Second
	// followPage is how many transitions are read at once, followPause the least time
	// between two reads, followBuffer how many batches wait for a client, followMost how
	// many transitions it may have missed, followPart how many of these have a place.
	followPage   = 1000
	followPause  = 10 * time.Millisecond
	followBuffer = 64
	followMost   = 5000
	followPart   = 100
)

// TransitionBatch are transitions for a client. Those of a task are in their order.
type TransitionBatch struct {
	List []store.Transition
	// ID is the place to continue from after this batch; "": a later batch of the same read has it.
	ID string
	// Reset says that transitions before this batch may have been missed, Overflow that
	// there were too many since the place from which the client continues.
	Reset, Overflow bool
	// Rendered is shared by the clients that get the same batch; nil: it is of one client.
	Rendered *Rendered

	span followPlace // of the read; zero: its transitions have no places
}

// maxOften bounds the snapshots of which every transition has a place: those of many running
// transactions are long.
const maxOften = 300

// Place is the place to continue from after a transition of the batch, by its index; "": a later
// one has it. A client that is cut off within a batch goes on from there.
func (b *TransitionBatch) Place(i int) string {
	last := i == len(b.List)-1
	switch {
	case last && b.ID != "":
		return b.ID
	case b.span.upto == "", !last && (i+1)%followPart != 0 && len(b.span.snapshot)+len(b.span.upto) > maxOften:
		return ""
	}
	place := b.span
	place.past = b.List[i].Position
	return place.String()
}

// Rendered caches the encoding of a batch that the first client made for the others: encoding
// it for each client would dominate the cost. It is safe for concurrent use.
type Rendered struct {
	once sync.Once
	text []byte
}

// Text returns what render returned for the first client. It must not be changed.
func (r *Rendered) Text(render func() []byte) []byte {
	if r == nil {
		return render()
	}
	r.once.Do(func() { r.text = render() })
	return r.text
}

// Following is a client's view of transitions. It must be closed.
type Following struct {
	// Batches receives the transitions; it is closed when the client is too slow.
	Batches <-chan TransitionBatch

	hub   *followers
	scope store.Scope
	queue chan TransitionBatch // Batches
	cut   bool
}

// followers are the clients that follow transitions. One read serves all of them.
type followers struct {
	o    *Orchestrator
	poll time.Duration
	wake broadcast
	some chan struct{} // of capacity 1: there is a first client
	loop *lifecycle.Loop

	turn   sync.Mutex // of reads: a client joins between two of them
	seen   store.Seen // up to where all clients have read; guarded by turn
	passed []store.Seen

	mu      sync.Mutex
	clients map[*Following]bool
	eras    map[store.Scope]uuid.UUID // of the scopes with clients
	place   store.Seen                // seen, for Following.ID
}

func newFollowers(o *Orchestrator) *followers {
	f := &followers{o: o, poll: o.cfg.FollowPoll, some: make(chan struct{}, 1), clients: map[*Following]bool{}, eras: map[store.Scope]uuid.UUID{}}
	if f.poll == 0 {
		f.poll = followPoll
	}
	f.loop = lifecycle.NewLoop(lifecycle.LoopConfig{Name: "transitions", Run: f.run, Logger: o.log, OnRestart: o.metrics.Restarted})
	return f
}

// Follow follows the transitions of a scope, from the place id on; "": from now on. The
// first batches have the transitions since that place.
func (o *Orchestrator) Follow(ctx context.Context, scope store.Scope, id string) (*Following, error) {
	f, err := o.followers.join(ctx, scope, id)
	if err != nil {
		return nil, fmt.Errorf("follow transitions: %w", err)
	}
	return f, nil
}

func (h *followers) join(ctx context.Context, scope store.Scope, id string) (*Following, error) {
	eras, err := h.o.store.Follow(ctx, []store.Scope{scope}, followFor)
	if err != nil {
		return nil, err
	}
	from, resumes := readPlace(id)
	resumes = resumes && from.era == eras[scope]
	if !resumes {
		if err := breaker.Outside(ctx, func() error { return h.awaitUnaware(ctx) }); err != nil {
			return nil, err
		}
	}
	h.turn.Lock()
	defer h.turn.Unlock()
	if err := h.read(ctx); err != nil {
		return nil, err
	}
	first := []TransitionBatch{{Reset: id != "" && (!resumes || h.seen.At.Sub(from.at) > followBack)}}
	if resumes && !first[0].Reset {
		if first, err = h.missed(ctx, scope, from); err != nil {
			return nil, err
		}
	}
	first[len(first)-1].ID = placeOf(eras[scope], h.seen)
	queue := make(chan TransitionBatch, len(first)+followBuffer)
	for _, b := range first {
		queue <- b
	}
	f := &Following{Batches: queue, hub: h, scope: scope, queue: queue}
	h.mu.Lock()
	defer h.mu.Unlock()
	if era, known := h.eras[scope]; known && era != eras[scope] {
		h.renew(eras, h.seen)
	}
	h.clients[f], h.eras[scope] = true, eras[scope]
	lifecycle.Nudge(h.some)
	return f, nil
}

// missed returns the transitions since a place in batches, at least one. Each but the last
// has its own place: a client that is cut off continues after those that it has received.
func (h *followers) missed(ctx context.Context, scope store.Scope, from followPlace) (list []TransitionBatch, err error) {
	spans := []followPlace{{era: from.era, at: from.at, snapshot: from.snapshot, upto: h.seen.Snapshot}}
	if from.upto != "" { // the rest of what was missed before comes first
		spans[0].snapshot = from.upto
		spans = []followPlace{from, spans[0]}
	}
	most := followMost
	for _, span := range spans {
		page, _, err := h.o.store.Transitions(ctx, store.TransitionQuery{Scopes: []store.Scope{scope}, After: span.snapshot, Upto: span.upto, Past: span.past, Limit: most + 1})
		if err != nil {
			return nil, err
		}
		if most -= len(page); most < 0 {
			return []TransitionBatch{{Overflow: true}}, nil
		}
		for part := range slices.Chunk(page, followPart) {
			span.past = part[len(part)-1].Position
			list = append(list, TransitionBatch{List: part, ID: span.String(), span: span})
		}
	}
	if len(list) == 0 {
		list = []TransitionBatch{{}}
	}
	return list, nil
}

// awaitUnaware waits for transactions that record no transitions because they checked for
// followers before this client. Those of users may stay open for long, and can only create tasks.
func (h *followers) awaitUnaware(ctx context.Context) error {
	patience := time.NewTimer(followPatience)
	defer patience.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	left, err := h.o.store.Unaware(ctx, nil)
	for err == nil && len(left) > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-patience.C:
			return nil
		case <-tick.C:
			left, err = h.o.store.Unaware(ctx, left)
		}
	}
	return err
}

// Close stops following.
func (f *Following) Close() {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	f.hub.leave(f)
}

// Refresh has read what was visible before, for all clients.
func (f *Following) Refresh(ctx context.Context) error {
	f.hub.turn.Lock()
	defer f.hub.turn.Unlock()
	return f.hub.read(ctx)
}

// ID is the place to continue from when all batches have been received; "": there are
// more.
func (f *Following) ID() string {
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	if len(f.queue) > 0 || f.cut {
		return ""
	}
	return placeOf(f.hub.eras[f.scope], f.hub.place)
}

// leave removes a client; the scope ends with the last one.
func (h *followers) leave(f *Following) {
	delete(h.clients, f)
	for other := range h.clients {
		if other.scope == f.scope {
			return
		}
	}
	delete(h.eras, f.scope)
}

func (h *followers) scopes() []store.Scope {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.eras))
}

// run reads for the clients, and renews the scopes that they follow.
func (h *followers) run(ctx context.Context) error {
	keep, poll, pause := time.NewTicker(followKeep), time.NewTimer(h.poll), time.NewTimer(followPause)
	defer keep.Stop()
	defer poll.Stop()
	defer pause.Stop()
	for ctx.Err() == nil {
		var woken <-chan struct{}
		var again <-chan time.Time
		if len(h.scopes()) > 0 {
			woken, again = h.wake.wait(), poll.C // before the look
			h.look(ctx)
			poll.Reset(h.poll)
			pause.Reset(followPause)
		}
		select {
		case <-ctx.Done():
		case <-woken:
			<-pause.C
		case <-again:
		case <-h.some:
		case <-keep.C:
			h.keep(ctx)
		}
	}
	return nil
}

func (h *followers) look(ctx context.Context) {
	h.turn.Lock()
	defer h.turn.Unlock()
	if err := h.read(ctx); err != nil && ctx.Err() == nil {
		h.o.log.Warn("reading transitions failed", zap.Error(err))
	}
}

// read hands all clients what has become visible since the last read, page by page up to
// one moment. Without clients it only moves on. The caller has the turn.
func (h *followers) read(ctx context.Context) error {
	scopes := h.scopes()
	if len(scopes) == 0 || h.seen.Snapshot == "" {
		seen, err := h.o.store.SeenNow(ctx)
		if err == nil {
			h.reached(seen)
		}
		return err
	}
	from := h.seen
	q := store.TransitionQuery{Scopes: scopes, After: from.Snapshot, Limit: followPage}
	for {
		page, seen, err := h.o.store.Transitions(ctx, q)
		if err != nil {
			return err // what was handed out is handed out again
		}
		last := len(page) < q.Limit
		h.hand(page, from, seen, last)
		if last {
			return nil
		}
		q.Upto, q.Past = seen.Snapshot, page[len(page)-1].Position
	}
}

func (h *followers) reached(seen store.Seen) {
	h.seen = seen
	h.mu.Lock()
	defer h.mu.Unlock()
	h.place = seen
}

// hand sends every client its part of a page of what was seen since from; the last batch has the
// place after it.
func (h *followers) hand(page []store.Transition, from, seen store.Seen, last bool) {
	if last {
		h.reached(seen)
	}
	if len(page) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	parts := map[store.Scope]TransitionBatch{}
	for f := range h.clients {
		part, made := parts[f.scope]
		if !made {
			part = TransitionBatch{List: within(page, f.scope), Rendered: &Rendered{},
				span: followPlace{era: h.eras[f.scope], at: from.At, snapshot: from.Snapshot, upto: seen.Snapshot}}
			if last {
				part.ID = placeOf(h.eras[f.scope], seen)
			}
			parts[f.scope] = part
		}
		if len(part.List) > 0 {
			h.send(f, part)
		}
	}
}

// within are the transitions of a scope; clients share them.
func within(page []store.Transition, scope store.Scope) (list []store.Transition) {
	if scope == (store.Scope{}) {
		return page
	}
	for i := range page {
		if scope.Includes(&page[i]) {
			list = append(list, page[i])
		}
	}
	return list
}

// send never waits: a client that is too slow is cut off.
func (h *followers) send(f *Following, b TransitionBatch) {
	if f.cut {
		return
	}
	select {
	case f.queue <- b:
	default:
		f.cut = true
		close(f.queue)
		h.leave(f)
	}
}

// keep renews the followed scopes, and deletes transitions that all have read. A new era means that
// transitions were missed: after a crash, or while the database was out of reach.
func (h *followers) keep(ctx context.Context) {
	if err := h.prolong(ctx); err != nil && ctx.Err() == nil {
		h.o.log.Warn("prolonging the following of transitions failed", zap.Error(err))
	}
	if err := h.forget(ctx); err != nil && ctx.Err() == nil {
		h.o.log.Warn("deleting old transitions failed", zap.Error(err))
	}
}

func (h *followers) prolong(ctx context.Context) error {
	scopes := h.scopes()
	if len(scopes) == 0 {
		return nil
	}
	eras, err := h.o.store.Follow(ctx, scopes, followFor)
	if err != nil {
		return err
	}
	if !h.renewed(eras) {
		return nil
	}
	if err := h.awaitUnaware(ctx); err != nil {
		return err
	}
	h.turn.Lock()
	defer h.turn.Unlock()
	seen, err := h.o.store.SeenNow(ctx)
	if err != nil {
		return err
	}
	h.reached(seen)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renew(eras, seen)
	return nil
}

// renewed reports whether the era of a scope with clients is another one.
func (h *followers) renewed(eras map[store.Scope]uuid.UUID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for scope, era := range h.eras {
		if now, known := eras[scope]; known && now != era {
			return true
		}
	}
	return false
}

// renew tells the clients whose era has ended. The caller holds mu.
func (h *followers) renew(eras map[store.Scope]uuid.UUID, seen store.Seen) {
	for f := range h.clients {
		era, known := eras[f.scope]
		if known && era != h.eras[f.scope] {
			h.send(f, TransitionBatch{Reset: true, ID: placeOf(era, seen)})
		}
	}
	for scope := range h.eras {
		if era, known := eras[scope]; known {
			h.eras[scope] = era
		}
	}
}

// forget deletes transitions that were visible so long ago that no client continues from
// before.
func (h *followers) forget(ctx context.Context) error {
	now := time.Now()
	before := ""
	for len(h.passed) > 0 && now.Sub(h.passed[0].At) > keptFor {
		before, h.passed = h.passed[0].Snapshot, h.passed[1:]
	}
	followed, err := h.o.store.ForgetTransitions(ctx, before)
	if err != nil || !followed {
		return err
	}
	seen, err := h.o.store.SeenNow(ctx)
	if err == nil {
		seen.At = now
		h.passed = append(h.passed, seen)
	}
	return err
}

// followPlace is a place among transitions: after all that are visible in a snapshot and, if
// upto is not "", after those up to the position past that are visible in upto.
type followPlace struct {
	era            uuid.UUID
	at             time.Time // of snapshot
	snapshot, upto string
	past           int64
}

// placeOf writes the place after all that was visible at a moment.
func placeOf(era uuid.UUID, seen store.Seen) string {
	return followPlace{era: era, at: seen.At, snapshot: seen.Snapshot}.String()
}

// String is the place as text: its era, the milliseconds since 1970, the snapshot and, if
// it has them, upto and past.
func (p followPlace) String() string {
	text := p.era.String() + "." + strconv.FormatInt(p.at.UnixMilli(), 10) + "." + p.snapshot
	if p.upto != "" {
		text += "." + p.upto + "." + strconv.FormatInt(p.past, 10)
	}
	return text
}

// maxPlace bounds the text of a place: a snapshot lists the transactions that are running.
const maxPlace = 64 << 10

func readPlace(id string) (p followPlace, ok bool) {
	parts := strings.SplitN(id, ".", 6)
	if len(id) > maxPlace || len(parts) != 3 && len(parts) != 5 {
		return p, false
	}
	era, err := uuid.Parse(parts[0])
	ms, wrong := strconv.ParseInt(parts[1], 10, 64)
	p = followPlace{era: era, at: time.UnixMilli(ms), snapshot: parts[2]}
	if err != nil || wrong != nil || !isSnapshot(p.snapshot) {
		return p, false
	}
	if len(parts) == 5 {
		p.upto = parts[3]
		p.past, err = strconv.ParseInt(parts[4], 10, 64)
		return p, err == nil && isSnapshot(p.upto)
	}
	return p, true
}

// isSnapshot reports whether PostgreSQL reads a text as a snapshot: xmin:xmax:list, in order.
func isSnapshot(text string) bool {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return false
	}
	numbers := parts[:2]
	if parts[2] != "" {
		numbers = append(slices.Clone(numbers), strings.Split(parts[2], ",")...)
	}
	list := make([]uint64, len(numbers))
	for i, text := range numbers {
		n, err := strconv.ParseUint(text, 10, 63)
		if err != nil || n == 0 {
			return false
		}
		list[i] = n
	}
	least, end, running := list[0], list[1], list[2:]
	return least <= end && slices.IsSorted(running) && (len(running) == 0 || running[0] >= least && running[len(running)-1] < end)
}
