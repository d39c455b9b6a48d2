package stmt_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tasker-go/tasker/internal/store/internal/stmt"
)

// ended is a row of the kind that an apply sends most.
type ended struct {
	TaskUUID uuid.UUID
	Slot     int `sql:",smallint"`
	Outcome  int16
	Reason   string `sql:",omitzero"`
	State    int16  `sql:",omitzero"`
	Token    int64
	Progress []byte
	Last     bool
}

var endedTypes = []uint32{pgtype.UUIDArrayOID, pgtype.Int2ArrayOID, pgtype.Int2ArrayOID, pgtype.TextArrayOID, pgtype.Int2ArrayOID,
	pgtype.Int8ArrayOID, pgtype.ByteaArrayOID, pgtype.BoolArrayOID}

func encode(b *testing.B, args []any, buf []byte) []byte {
	types := pgtype.NewMap()
	for i, a := range args {
		out, err := types.Encode(endedTypes[i], pgtype.BinaryFormatCode, a, buf)
		if err != nil {
			b.Fatal(err)
		}
		if out != nil {
			buf = out
		}
	}
	return buf
}

// BenchmarkList compares a list of 500 rows with a slice for each column.
func BenchmarkList(b *testing.B) {
	const count = 500
	progress, id := make([]byte, 20), uuid.New()
	b.Run("list", func(b *testing.B) {
		statement := stmt.New(`select * from `+stmt.List[ended]("e"), nil)
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			var rows []ended
			for i := range count {
				rows = append(rows, ended{id, i, 1, "", 9, int64(i) * 1000, progress, true})
			}
			buf = encode(b, statement.With(stmt.Args{"e": rows}).Args, buf[:0])
		}
	})
	b.Run("columns", func(b *testing.B) {
		b.ReportAllocs()
		var buf []byte
		for b.Loop() {
			var (
				tasks           [][16]byte
				slots, outcomes []int16
				reasons         []*string
				states          []*int16
				tokens          []int64
				progresses      [][]byte
				lasts           []bool
			)
			for i := range count {
				tasks, slots, outcomes = append(tasks, id), append(slots, int16(i)), append(outcomes, 1)
				state := int16(9)
				reasons, states, tokens = append(reasons, nil), append(states, &state), append(tokens, int64(i)*1000)
				progresses, lasts = append(progresses, progress), append(lasts, true)
			}
			buf = encode(b, []any{tasks, slots, outcomes, reasons, states, tokens, progresses, lasts}, buf[:0])
		}
	})
}

// BenchmarkCall builds a call with one row, as a quiet flow does.
func BenchmarkCall(b *testing.B) {
	statement := stmt.New(`select * from `+stmt.List[ended]("e"), nil)
	rows := []ended{{uuid.New(), 1, 1, "", 9, 1000, make([]byte, 20), true}}
	b.ReportAllocs()
	for b.Loop() {
		statement.With(stmt.Args{"e": rows})
	}
}

// answer is a row of a result without a server.
type answer struct {
	pgx.Rows
	columns []pgconn.FieldDescription
	values  [][]byte
	left    int
}

func (*answer) Close()                                         {}
func (*answer) Err() error                                     { return nil }
func (a *answer) FieldDescriptions() []pgconn.FieldDescription { return a.columns }
func (a *answer) RawValues() [][]byte                          { return a.values }
func (*answer) Scan(...any) error                              { return nil }

func (a *answer) Next() bool {
	a.left--
	return a.left >= 0
}

// BenchmarkRow prepares the reading of one row.
func BenchmarkRow(b *testing.B) {
	names := []string{"task_uuid", "slot", "outcome", "reason", "state", "token", "progress", "last"}
	columns := make([]pgconn.FieldDescription, len(names))
	for i := range names {
		columns[i].Name = names[i]
	}
	b.ReportAllocs()
	for b.Loop() {
		var row ended
		if err := stmt.Row(&row)(&answer{columns: columns, values: make([][]byte, len(names)), left: 1}); err != nil {
			b.Fatal(err)
		}
	}
}
