package worker_test

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tasker-go/tasker/worker"
)

// A handler that reads a table page by page: each page is a task that names the next one.
// Continued lets a test see what the handler asked for.
func ExampleContinue() {
	type page struct {
		From int `json:"from"`
	}
	read := func(in page) (map[string]int, error) {
		result := map[string]int{"rows": 1000}
		if in.From >= 2000 {
			return result, nil
		}
		next, err := json.Marshal(page{in.From + 1000})
		if err != nil {
			return nil, worker.Permanent(err)
		}
		return worker.Continue(result, worker.NextTask{Namespace: "etl", Name: "read_page", Version: "1.0.0", Context: next})
	}
	for _, from := range []int{1000, 2000} {
		_, err := read(page{from})
		next, ok := worker.Continued(err)
		fmt.Println(ok, next.Name, string(next.Context))
	}
	// Output:
	// true read_page {"from":2000}
	// false
}

// Errors keep what they wrap; the engine reads the mark.
func ExamplePermanent() {
	declined := errors.New("the card was declined")
	err := worker.WithCode(worker.Permanent(fmt.Errorf("charge order 17: %w", declined)), "DECLINED")
	fmt.Println(err, errors.Is(err, declined))
	// Output: charge order 17: the card was declined true
}
