package stmt_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/pgtest"
	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

func TestRowsAreReadByName(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t).Pool(t)
	type handler struct{ Name, Method string }
	type row struct {
		key     `sql:",omitzero"`
		Lease   time.Duration `sql:",seconds"`
		Age     time.Duration
		Handler handler `sql:",inline"`
		Doc     json.RawMessage
		Worker  *uuid.UUID
		Left    string `sql:"-"`
	}
	both := stmt.New(`select 2 as step_no, '{"n": 1}'::jsonb as doc, @task::uuid as task_uuid, 1.5::float8 as lease, 20::bigint as age, 'n' as name, @task::uuid as worker
		union all select null, null, null, 2, 0, 'm', null`, nil).With(stmt.Args{"task": uuid.UUID{1}})
	list, err := stmt.All[row](t.Context(), db, both)
	require.NoError(t, err)
	require.Equal(t, []row{
		{key: key{uuid.UUID{1}, 2}, Lease: 1500 * time.Millisecond, Age: 20 * time.Millisecond, Handler: handler{Name: "n"}, Doc: json.RawMessage(`{"n": 1}`), Worker: &uuid.UUID{1}},
		{Lease: 2 * time.Second, Handler: handler{Name: "m"}},
	}, list)

	number := stmt.New(`select n from generate_series(1, @count::int) n`, nil)
	numbers, err := stmt.All[int](t.Context(), db, number.With(stmt.Args{"count": 0}))
	require.NoError(t, err)
	require.Equal(t, []int{}, numbers)
	for count, want := range []error{pgx.ErrNoRows, nil, pgx.ErrTooManyRows} {
		_, err = stmt.One[int](t.Context(), db, number.With(stmt.Args{"count": count}))
		require.ErrorIs(t, err, want)
	}
}

func TestAColumnHasAField(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t).Pool(t)
	_, err := stmt.One[key](t.Context(), db, stmt.New(`select 1 as step_no, 2 as other`, nil).With(nil))
	require.ErrorContains(t, err, `no field of stmt_test.key is the column "other"`)
	_, err = stmt.One[key](t.Context(), db, stmt.New(`select 1 as step_no`, nil).With(nil))
	require.ErrorContains(t, err, `no column is the field "task_uuid" of stmt_test.key`)
}
