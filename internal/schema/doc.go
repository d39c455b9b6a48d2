// Package schema compiles JSON Schemas and checks values against them, on top of a library
// whose messages are not for people: input schemas of templates, schemas of events and of
// results.
//
// A schema comes from the author of a template, a value from anywhere: the cost of a check is
// bounded, no pattern can take exponential time, nothing is ever loaded from outside, and a
// message never shows a value.
//
// What may not enter: templates and their files, which workflow/template reads, and the
// decision what to do about a value that does not fit.
package schema
