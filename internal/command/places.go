package command

import "container/list"

// places are the slots of a batcher's pending items; a caller that finds none free
// waits in line. The batcher's lock guards it.
type places struct {
	limit   int
	taken   int       // by pending items, and by called waiters
	waiting list.List // of *inLine
}

// inLine is a caller that waits for a place.
type inLine struct {
	called chan struct{} // closed once it has a place
	where  *list.Element
}

// tryTake takes a place if one is free and no caller waits for it.
func (p *places) tryTake() bool {
	if p.taken >= p.limit || p.waiting.Len() > 0 {
		return false
	}
	p.taken++
	return true
}

// take takes a place, or joins the line.
func (p *places) take() (wait *inLine) {
	if p.tryTake() {
		return nil
	}
	wait = &inLine{called: make(chan struct{})}
	wait.where = p.waiting.PushBack(wait)
	return wait
}

// free returns n places, first to the callers in line.
func (p *places) free(n int) {
	p.taken -= n
	for p.taken < p.limit {
		first := p.waiting.Front()
		if first == nil {
			return
		}
		p.waiting.Remove(first)
		if w, ok := first.Value.(*inLine); ok {
			p.taken++
			close(w.called)
		}
	}
}

// leave leaves the line, or returns a place that was granted meanwhile.
func (p *places) leave(w *inLine) {
	select {
	case <-w.called:
		p.free(1)
	default:
		p.waiting.Remove(w.where)
	}
}
