package batch_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tasker-go/tasker/worker/batch"
)

// A file of 1,000 rows in parts of at most 300, and of at most 3 parts.
func ExampleSplit() {
	for _, c := range batch.Split(1000, 300, 0) {
		fmt.Print(c.ID, ": ", c.Start, "-", c.End, "  ")
	}
	fmt.Println(len(batch.Split(1000, 300, 3)))
	// Output: 001: 0-250  002: 250-500  003: 500-750  004: 750-1000  3
}

// The result of a batchable step: one process_rows for each cursor, and a field for the
// steps that follow.
func ExampleCreate() {
	result := batch.Create("process_rows", batch.Split(500, 250, 0), 500).With("file", "orders.csv")
	raw, err := json.Marshal(result)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(strings.Replace(string(raw), `},{"b`, "},\n{\"b", 1))
	// Output:
	// {"batch_processing_outcome":{"cursor_configs":[{"batch_id":"001","start_cursor":0,"end_cursor":250,"batch_size":250},
	// {"batch_id":"002","start_cursor":250,"end_cursor":500,"batch_size":250}],"total_items":500,"type":"create_batches","worker_count":2,"worker_template_name":"process_rows"},"file":"orders.csv"}
}
