package pgclient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/tasker-go/tasker/client"
	"github.com/tasker-go/tasker/client/pgclient"
)

// The orders of a day and the tasks that process them are there after the
// commit, or none of them.
func ExampleClient_CreateTasksTx() {
	ctx := context.Background()
	tasks := pgclient.New(pgclient.AnnounceNotify) // keep it: it caches templates
	process := func(tx pgx.Tx, orders []int) error {
		if _, err := tx.Exec(ctx, `insert into orders (id) select unnest($1::int[])`, orders); err != nil {
			return err
		}
		requests := make([]client.TaskRequest, len(orders))
		for i, order := range orders {
			requests[i] = client.TaskRequest{Namespace: "shop", Name: "book_order", Version: "1.0.0",
				Context: json.RawMessage(fmt.Sprintf(`{"id": %d}`, order)), IdempotencyKey: fmt.Sprintf("order-%d", order)}
		}
		results, err := tasks.CreateTasksTx(ctx, tx, requests)
		for i := range results {
			if results[i].Err != nil { // of this order only; return it to create all or none
				err = errors.Join(err, fmt.Errorf("order %d: %w", orders[i], results[i].Err))
			}
		}
		return err
	}
	conn, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err == nil {
		err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return process(tx, []int{4711, 4712, 4713}) })
	}
	if err != nil {
		fmt.Println(err)
	}
}
