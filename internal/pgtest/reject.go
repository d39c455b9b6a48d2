package pgtest

import (
	"fmt"
	"testing"
)

// Rejections are codes with which a database rejects a row: raised by a trigger, a violated constraint,
// missing rights, and a page that cannot be read.
var Rejections = []string{"P0001", "23514", "42501", "XX001"}

// Reject makes the database reject rows of a table, with a code, until accept is called: those for which when holds, a
// condition on the rows old and new of an event (insert, update, delete, or several). One test does it for one table.
func (db *DB) Reject(t testing.TB, table, event, when, code string) (accept func()) {
	t.Helper()
	row := "new"
	if event == "delete" {
		row = "old"
	}
	db.Exec(t, fmt.Sprintf(`create function reject() returns trigger language plpgsql as $$
		begin
			if %s then raise exception 'rejected by the test' using errcode = '%s'; end if;
			return %s;
		end $$`, when, code, row))
	db.Exec(t, fmt.Sprintf(`create trigger reject before %s on tasker.%s for each row execute function reject()`, event, table))
	return func() {
		t.Helper()
		db.Exec(t, fmt.Sprintf(`create or replace function reject() returns trigger language plpgsql as $$ begin return %s; end $$`, row))
	}
}
