// Package template reads task templates: YAML or JSON files become a workflow.Template, or a
// list of everything that is wrong or odd in them, with line, column and a code.
//
// A file goes through four steps: source.go and yaml.go make a tree of nodes with their
// places, within the limits of limits.go; reader.go reads a node as one type and is liberal where the meaning is
// clear; parse.go, step.go, wait.go and schema.go know the keys; check.go looks at the steps
// together. load.go finds files.
//
// What may not enter: what a template means at run time (workflow), the database, and
// anything that stops at the first problem.
package template
