package orchestration

import "github.com/tasker-go/tasker/store"

// batchSize makes the batches of reported steps smaller while their results are
// large. How large they are is known only when they are here: so a batch may
// exceed the bound once, and those behind it do not.
type batchSize struct {
	limit int // of the next batch; 0: there is none
}

// next is how many steps the next batch takes, at most most.
func (b *batchSize) next(most int) int {
	if b.limit == 0 {
		return most
	}
	return min(b.limit, most)
}

// took judges a batch by the bytes of the results that came with it. Within half
// of the bound the next one may be twice as large.
func (b *batchSize) took(tasks []store.TakenTask, bound int) {
	steps, bytes := 0, 0
	for i := range tasks {
		for _, s := range tasks[i].Reported {
			steps++
			bytes += len(s.Result)
		}
	}
	switch {
	case bound <= 0 || steps == 0:
	case bytes > bound:
		b.limit = max(1, int(int64(steps)*int64(bound)/int64(bytes)))
	case bytes <= bound/2 && b.limit > 0:
		b.limit = min(2*b.limit, 1<<20)
	}
}
