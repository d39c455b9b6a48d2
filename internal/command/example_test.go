package command_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tasker-go/tasker/internal/command"
)

// Each caller gets its own result; callers that arrive while a batch is in flight share
// the next.
func ExampleBatcher() {
	lengths := command.NewBatcher(command.BatcherConfig{Name: "lengths", MaxBatch: 100, MaxPending: 1000},
		func(_ context.Context, words []string) ([]int, error) {
			out := make([]int, len(words))
			for i, w := range words {
				out[i] = len(w)
			}
			return out, nil
		})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(lengths.Do(ctx, "natural"))
	fmt.Println(lengths.Stop(ctx))
	// Output:
	// 7 <nil>
	// <nil>
}
