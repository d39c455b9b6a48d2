package orchestration

import "github.com/tasker-go/tasker/internal/store"

// batchSize shrinks the batches of reported steps while their results are large.
// Their size is known only after reading, so one batch may exceed the bound; later
// ones do not.
type batchSize struct {
	limit int // of the next batch; 0: none
}

// next returns how many steps the next batch takes, at most most.
func (b *batchSize) next(most int) int {
	if b.limit == 0 {
		return most
	}
	return min(b.limit, most)
}

// took adapts the limit to the bytes of the results of a batch. Below half of the
// bound the next batch may be twice as large.
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
