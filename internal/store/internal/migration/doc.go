// Package migration brings the schema of a database up to date, and refuses one that this
// program does not know.
//
// What may not enter: the text of the schema, which lies beside package store.
package migration
