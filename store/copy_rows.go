package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// copyRows are rows in the binary format of COPY. pgx writes it too, but value by value
// out of interfaces, which takes longer than the server needs for the rows. Source: the
// PostgreSQL documentation, COPY, "Binary Format".
type copyRows struct {
	into   string // table and columns
	fields uint16
	buf    []byte
}

// newCopyRows begins rows of so many bytes, about; into names the table and its
// columns.
func newCopyRows(into string, size int) *copyRows {
	r := &copyRows{into: into, fields: uint16(strings.Count(into, ",") + 1), buf: make([]byte, 0, size+64)} // #nosec G115 -- columns are few
	r.buf = append(r.buf, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)                        // no flags, no extension
	return r
}

// send copies the rows, which must have all of their columns.
func (r *copyRows) send(ctx context.Context, tx pgx.Tx) error {
	r.buf = binary.BigEndian.AppendUint16(r.buf, math.MaxUint16) // the end
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(r.buf), "copy tasker."+r.into+" from stdin binary")
	return err
}

// begin begins a row.
func (r *copyRows) begin() { r.buf = binary.BigEndian.AppendUint16(r.buf, r.fields) }

func (r *copyRows) length(n int) {
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(n)) // #nosec G115 -- what is stored has bounds
}

func (r *copyRows) null() { r.buf = binary.BigEndian.AppendUint32(r.buf, math.MaxUint32) }

func (r *copyRows) nulls(n int) {
	for range n {
		r.null()
	}
}

func (r *copyRows) int2(v int) {
	r.length(2)
	r.buf = binary.BigEndian.AppendUint16(r.buf, uint16(v)) // #nosec G115 -- a smallint
}

func (r *copyRows) int4(v int32) {
	r.length(4)
	r.buf = binary.BigEndian.AppendUint32(r.buf, uint32(v)) // #nosec G115 -- the same bits
}

func (r *copyRows) int8(v int64) {
	r.length(8)
	r.buf = binary.BigEndian.AppendUint64(r.buf, uint64(v)) // #nosec G115 -- the same bits
}

// ifTrue is true, or null.
func (r *copyRows) ifTrue(v bool) {
	if !v {
		r.null()
		return
	}
	r.length(1)
	r.buf = append(r.buf, 1)
}

func (r *copyRows) bytes(v []byte) {
	r.length(len(v))
	r.buf = append(r.buf, v...)
}

func (r *copyRows) uuid(v *uuid.UUID) {
	if v == nil {
		r.null()
		return
	}
	r.bytes(v[:])
}

// text writes a text; the empty one is null.
func (r *copyRows) text(v string) {
	if v == "" {
		r.null()
		return
	}
	r.length(len(v))
	r.buf = append(r.buf, v...)
}

// json is a jsonb of version 1, which is its text.
func (r *copyRows) json(v string) {
	r.length(len(v) + 1)
	r.buf = append(append(r.buf, 1), v...)
}

// list writes a text[]; an empty one is null.
func (r *copyRows) list(list []string) {
	if len(list) == 0 {
		r.null()
		return
	}
	const textOID = 25
	at := len(r.buf)
	r.length(0)                                                 // known at the end
	for _, header := range []int{1, 0, textOID, len(list), 1} { // dimensions, no nulls, the type, how many, from 1 on
		r.length(header)
	}
	for _, v := range list {
		r.length(len(v))
		r.buf = append(r.buf, v...)
	}
	binary.BigEndian.PutUint32(r.buf[at:], uint32(len(r.buf)-at-4)) // #nosec G115 -- what is stored has bounds
}

// epoch is where PostgreSQL's time begins.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// time is a timestamptz so long after an instant, in milliseconds.
func (r *copyRows) time(at time.Time, after time.Duration) {
	r.int8(at.Sub(epoch).Microseconds() + 1000*millis(after))
}

// later is time, or null without a duration.
func (r *copyRows) later(at time.Time, after time.Duration) {
	if after <= 0 {
		r.null()
		return
	}
	r.time(at, after)
}
