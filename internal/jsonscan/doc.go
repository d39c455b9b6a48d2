// Package jsonscan reads JSON texts without building values of them: one Scanner, and on it
// the canonical form that identities are made of, the check whether PostgreSQL can store a
// document, and the one spelling of a number. Unmarshal fills Go types without losing digits.
//
// Everything here is pure and safe for concurrent use; a Scanner belongs to one goroutine.
//
// What may not enter: the meaning of a document (templates, requests, results), schemas, and
// how Go types are filled, which encoding/json knows.
package jsonscan
