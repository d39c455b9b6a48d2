package places

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Places are a number of places, of which one principal has at most its share. They are safe for
// concurrent use.
type Places struct {
	what        string
	total, each int64
	free        *semaphore.Weighted

	mu sync.Mutex
	of map[string]*holder // by principal; those that hold or wait
}

// holder is a principal.
type holder struct {
	own   *semaphore.Weighted // what it may still hold of its share
	users int                 // that hold or wait; guarded by Places.mu
}

// ErrFull is returned where others hold all places.
var ErrFull = errors.New("all places are taken")

// ShareError is returned to a principal that holds its share, though there may be free places.
type ShareError struct {
	Principal, What string
	Each, Total     int64
}

// Error implements error, for clients.
func (e *ShareError) Error() string {
	return fmt.Sprintf("%q uses its share of the %s: %d of %d", e.Principal, e.What, e.Each, e.Total)
}

// Label names what was to be held to the metric of refusals.
func (e *ShareError) Label() string { return strings.ReplaceAll(e.What, " ", "_") }

// New returns total places for what, of which a principal has at most the percentage, and at least
// one. A percentage of 0 or from 100 on gives each principal all.
func New(what string, total int64, percent int) *Places {
	total = max(total, 0)
	each := total
	if percent > 0 && percent < 100 {
		each = min(max(total/100*int64(percent)+total%100*int64(percent)/100, 1), total)
	}
	return &Places{what: what, total: total, each: each, free: semaphore.NewWeighted(total), of: map[string]*holder{}}
}

// Total returns how many there are.
func (p *Places) Total() int64 { return p.total }

// Each returns how many of them a principal may hold; without a name it may hold all.
func (p *Places) Each(principal string) int64 {
	if principal == "" {
		return p.total
	}
	return p.each
}

// Held are the places of one request, which belong to one goroutine at a time.
type Held struct {
	places    *Places
	principal string
	holder    *holder // nil: no share bounds it
	n         int64
}

// Take waits for n places of a principal; "" is one without a share. A single request that needs
// more than the share gets it when the principal holds nothing else, and at most all. The error is
// a *ShareError, or ErrFull, and the wait ends with the context.
func (p *Places) Take(ctx context.Context, principal string, n int64) (*Held, error) {
	h := p.enter(principal)
	n = min(max(n, 0), p.total)
	if p.total == 0 { // a semaphore without places would let nothing through
		return nil, h.refuse(ErrFull)
	}
	if h.holder != nil && h.holder.own.Acquire(ctx, min(n, p.each)) != nil {
		return nil, h.refuse(h.exhausted())
	}
	if p.free.Acquire(ctx, n) != nil {
		h.releaseOwn(n)
		return nil, h.refuse(ErrFull)
	}
	h.n = n
	return h, nil
}

// TryTake is Take that does not wait.
func (p *Places) TryTake(principal string, n int64) (*Held, error) {
	h := p.enter(principal)
	if p.total == 0 {
		return nil, h.refuse(ErrFull)
	}
	if err := h.Become(n); err != nil {
		return nil, h.refuse(err)
	}
	return h, nil
}

// Become changes the number of places, of which there are at most all. It does not wait for more.
func (h *Held) Become(n int64) error {
	p := h.places
	n = min(max(n, 0), p.total)
	more, own := n-h.n, min(n, p.each)-min(h.n, p.each)
	switch {
	case more > 0:
		if h.holder != nil && own > 0 && !h.holder.own.TryAcquire(own) {
			return h.exhausted()
		}
		if !p.free.TryAcquire(more) {
			if h.holder != nil && own > 0 {
				h.holder.own.Release(own)
			}
			return ErrFull
		}
	case more < 0:
		p.free.Release(-more)
		if h.holder != nil {
			h.holder.own.Release(-own)
		}
	}
	h.n = n
	return nil
}

// Number returns how many places are held.
func (h *Held) Number() int64 { return h.n }

// Leave releases the places. It is called once.
func (h *Held) Leave() {
	_ = h.Become(0) // fewer never fail
	h.leave()
}

func (p *Places) enter(principal string) *Held {
	h := &Held{places: p, principal: principal}
	if principal == "" || p.each == p.total {
		return h
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h.holder = p.of[principal]
	if h.holder == nil {
		h.holder = &holder{own: semaphore.NewWeighted(p.each)}
		p.of[principal] = h.holder
	}
	h.holder.users++
	return h
}

func (h *Held) leave() {
	if h.holder == nil {
		return
	}
	h.places.mu.Lock()
	defer h.places.mu.Unlock()
	if h.holder.users--; h.holder.users == 0 {
		delete(h.places.of, h.principal)
	}
}

func (h *Held) releaseOwn(n int64) {
	if h.holder != nil {
		h.holder.own.Release(min(n, h.places.each))
	}
}

func (h *Held) refuse(err error) error {
	h.leave()
	return err
}

func (h *Held) exhausted() error {
	return &ShareError{Principal: h.principal, What: h.places.what, Each: h.places.each, Total: h.places.total}
}
