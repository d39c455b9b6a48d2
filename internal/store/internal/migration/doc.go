// Package migration brings the schema of a database up to date while daemons of the
// version before work in it, tells what that would do, verifies what it has made, and
// refuses a database that this program cannot serve.
//
// A migration is a file of SQL: what stands under `-- +goose Up` is one transaction, and
// the sections `-- +online` after it, which take their time and hold no lock for long, come
// one by one. Everything but `-- +goose Down` may be run again after it was cut off.
//
// What may not enter: the text of the schema, which lies beside package store.
package migration
