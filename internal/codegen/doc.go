// Package codegen writes the types and the skeletons of handlers that a template asks for,
// in Go, Python and TypeScript. The types come from the JSON Schemas of the template: the
// context of its tasks, and the results of its steps. The same template always gives the
// same text.
//
// What may not enter: files and servers, from which the commands read templates, and the
// rules of the engine.
package codegen
