package main

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/tasker-go/tasker/test/bench/internal/load"
	"github.com/tasker-go/tasker/worker"
	"github.com/tasker-go/tasker/worker/batch"
)

const (
	rowCount  = 1000
	rowsEach  = 200
	rowsParts = 5
)

// rowsFile is a file of a thousand products, written on first use.
var rowsFile = sync.OnceValues(func() (string, error) {
	f, err := os.CreateTemp("", "tasker-bench-*.csv")
	if err != nil {
		return "", fmt.Errorf("make a file of rows: %w", err)
	}
	b := bufio.NewWriter(f)
	for i := range rowCount {
		_, _ = fmt.Fprintf(b, "%d,\"Product %d, with a description of some length that has to be read too\",%d.99,%d\n", i, i, i%97, i%31)
	}
	return f.Name(), errors.Join(b.Flush(), f.Close())
})

// eachRow reads the file from the first row to the last of a part.
func eachRow(from, to int64, do func(row []string) error) error {
	path, err := rowsFile()
	if err != nil {
		return err
	}
	f, err := os.Open(path) // #nosec G304 -- the program's own file
	if err != nil {
		return fmt.Errorf("open the file of rows: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := csv.NewReader(bufio.NewReader(f))
	for at := int64(0); at < to; at++ {
		row, err := r.Read()
		if err != nil {
			return fmt.Errorf("read row %d: %w", at, err)
		}
		if at >= from {
			if err := do(row); err != nil {
				return fmt.Errorf("row %d: %w", at, err)
			}
		}
	}
	return nil
}

// stock is the sum of a part of the rows.
type stock struct {
	Rows  int     `json:"rows"`
	Value float64 `json:"value"`
}

func splitRows(*worker.StepContext) (any, error) {
	rows := int64(0)
	if err := eachRow(0, rowCount, func([]string) error { rows++; return nil }); err != nil {
		return nil, err
	}
	return batch.Create("read", batch.Split(rows, rowsEach, rowsParts), rows), nil
}

func readRows(ctx *worker.StepContext) (any, error) {
	from, to, err := worker.RangeOf(ctx)
	if err != nil {
		return nil, worker.Permanent(err)
	}
	var s stock
	err = eachRow(from, to, func(row []string) error {
		price, err := strconv.ParseFloat(row[2], 64)
		if err != nil {
			return err
		}
		items, err := strconv.Atoi(row[3])
		s.Rows, s.Value = s.Rows+1, s.Value+price*float64(items)
		return err
	})
	return s, err
}

func sumRows(ctx *worker.StepContext) (any, error) {
	results, _, err := batch.Results[stock](ctx, "read")
	if err != nil {
		return nil, err
	}
	var all stock
	for _, r := range results {
		all.Rows, all.Value = all.Rows+r.Value.Rows, all.Value+r.Value.Value
	}
	if all.Rows != rowCount {
		return nil, worker.Permanent(fmt.Errorf("%d of %d rows were read", all.Rows, rowCount))
	}
	return all, nil
}

func registerRows(w *worker.Worker) error {
	return errors.Join(
		w.Register(load.SplitHandler, worker.HandlerFunc(splitRows)),
		w.Register(load.ReadHandler, worker.HandlerFunc(readRows)),
		w.Register(load.SumHandler, worker.HandlerFunc(sumRows)),
	)
}
