package stmt_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

type key struct {
	TaskUUID uuid.UUID
	StepNo   int `sql:",smallint"`
}

type step struct {
	key
	DueIn   time.Duration `sql:"due_ms"`
	Result  json.RawMessage
	Parents []int
	Tags    []string `sql:",omitzero"`
	Reason  string   `sql:"why,omitzero"`
	Hidden  string   `sql:"-"`
	Worker  *uuid.UUID
}

func TestNamesBecomeNumbers(t *testing.T) {
	t.Parallel()
	s := stmt.New(`select '@no {no}', -- @no {no}
		@b, @a::int, {claimable} from t where x <@ @b and y = '{}'`, stmt.Constants{"claimable": "2"})
	require.Equal(t, `select '@no {no}', -- @no {no}
		$1, $2::int, 2 from t where x <@ $1 and y = '{}'`, s.String())
	require.Equal(t, []any{"y", 1}, s.With(stmt.Args{"a": 1, "b": "y"}).Args)
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	t.Parallel()
	s := stmt.New(`select @a from `+stmt.List[key]("k"), nil)
	for name, wrong := range map[string]func(){
		"constant": func() { stmt.New(`select {none}`, nil) },
		"missing":  func() { s.With(stmt.Args{"k": []key{}}) },
		"unknown":  func() { s.With(stmt.Args{"a": 1, "b": 1, "k": []key{}}) },
		"no list":  func() { s.With(stmt.Args{"a": 1, "k": 1}) },
		"no field": func() { s.With(stmt.Args{"a": 1, "k": []struct{ StepNo int }{}}) },
		"no type":  func() { stmt.List[struct{ X any }]("x") },
	} {
		require.Panics(t, wrong, name)
	}
}

func TestListsAreColumns(t *testing.T) {
	t.Parallel()
	require.Equal(t, "unnest(@k.task_uuid::uuid[], @k.step_no::smallint[]) k(task_uuid, step_no)", stmt.List[key]("k"))
	require.Equal(t, "unnest((select @k.task_uuid::uuid[]), (select @k.step_no::smallint[])) with ordinality k(task_uuid, step_no, at)",
		stmt.OrderedHiddenList[key]("k"))
	s := stmt.New("select * from "+stmt.List[step]("s"), nil)
	require.Equal(t, "select * from unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::uuid[])"+
		" s(task_uuid, step_no, due_ms, result, parents, tags, why, worker)", s.String())
	worker := uuid.UUID{7}
	rows := []step{
		{key: key{uuid.UUID{1}, 3}, DueIn: 1500 * time.Microsecond, Result: json.RawMessage(`{}`), Parents: []int{1, 2}, Tags: []string{"a", "b"}, Reason: "r", Worker: &worker},
		{key: key{uuid.UUID{2}, 4}, DueIn: -1},
	}
	types := pgtype.NewMap()
	want := []struct {
		oid  uint32
		into any
	}{
		{pgtype.UUIDArrayOID, [][16]byte{{1}, {2}}}, {pgtype.Int2ArrayOID, []int16{3, 4}}, {pgtype.Int8ArrayOID, []int64{2, 0}},
		{pgtype.TextArrayOID, []*string{new("{}"), nil}}, {pgtype.TextArrayOID, []*string{new("{1,2}"), new("{}")}},
		{pgtype.TextArrayOID, []*string{new("a\x1fb"), nil}}, {pgtype.TextArrayOID, []*string{new("r"), nil}}, {pgtype.UUIDArrayOID, []*[16]byte{{7}, nil}},
	}
	for i, argument := range s.With(stmt.Args{"s": rows}).Args {
		sent, err := types.Encode(want[i].oid, pgtype.BinaryFormatCode, argument, nil)
		require.NoError(t, err)
		expected, err := types.Encode(want[i].oid, pgtype.BinaryFormatCode, want[i].into, nil)
		require.NoError(t, err)
		require.Equal(t, expected, sent, i)
	}
	for i, argument := range s.With(stmt.Args{"s": []step(nil)}).Args {
		sent, err := types.Encode(want[i].oid, pgtype.BinaryFormatCode, argument, nil)
		require.NoError(t, err)
		require.Equal(t, i == 5 || i == 6, sent == nil, "an empty list has empty columns: %d", i)
	}
	for i, argument := range s.With(stmt.Args{"s": rows[1:]}).Args {
		sent, err := types.Encode(want[i].oid, pgtype.BinaryFormatCode, argument, nil)
		require.NoError(t, err)
		require.Equal(t, i == 5 || i == 6, sent == nil, "a column of omitted values is null: %d", i)
	}
}
