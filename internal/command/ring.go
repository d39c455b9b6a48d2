package command

// ring is a queue that reuses its memory.
type ring[T any] struct {
	items []T
	head  int
	size  int
}

func (r *ring[T]) len() int { return r.size }

func (r *ring[T]) push(item T) {
	if r.size == len(r.items) {
		grown := make([]T, max(8, 2*len(r.items)))
		n := copy(grown, r.items[r.head:])
		copy(grown[n:], r.items[:r.head])
		r.items, r.head = grown, 0
	}
	r.items[(r.head+r.size)%len(r.items)] = item
	r.size++
}

// first is the next item; nil: there is none.
func (r *ring[T]) first() *T {
	if r.size == 0 {
		return nil
	}
	return &r.items[r.head]
}

func (r *ring[T]) pop() (item T, ok bool) {
	if r.size == 0 {
		return item, false
	}
	var zero T
	item = r.items[r.head]
	r.items[r.head] = zero // release the references
	r.head = (r.head + 1) % len(r.items)
	r.size--
	return item, true
}
