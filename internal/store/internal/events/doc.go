// Package events reads published domain events, and hands them to consumers.
//
// What may not enter: their publishing, which is part of a task's decision (board).
package events
