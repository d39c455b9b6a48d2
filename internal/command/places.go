package command

import "container/list"

// places are what a batcher's pending items take up; who finds none free waits
// in line. The batcher's lock guards it.
type places struct {
	limit   int
	taken   int       // by pending items, and by those in line who were called
	waiting list.List // of *inLine
}

// inLine is one who waits for a place.
type inLine struct {
	called chan struct{} // closed once it has a place
	where  *list.Element
}

// take takes a place, or gets in line behind those who wait already.
func (p *places) take() (wait *inLine) {
	if p.taken < p.limit && p.waiting.Len() == 0 {
		p.taken++
		return nil
	}
	wait = &inLine{called: make(chan struct{})}
	wait.where = p.waiting.PushBack(wait)
	return wait
}

// free gives n places back, to those in line first.
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

// leave gets out of the line, or gives back the place that came meanwhile.
func (p *places) leave(w *inLine) {
	select {
	case <-w.called:
		p.free(1)
	default:
		p.waiting.Remove(w.where)
	}
}
