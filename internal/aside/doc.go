// Package aside lets a row that the database rejects stop only itself.
//
// A statement over many rows fails as a whole when the database rejects one of them: a
// trigger raises, a page cannot be read, a constraint is violated. Then the flow calls
// [Halves], which runs the statement over halves until the culprit is alone, and a [Set]
// leaves the culprit out for a time that grows with each rejection. A culprit is blamed
// once others have passed since its first rejection; the flow then ends its task where that
// is possible. While nothing passes, the database or its schema is at fault, and no task.
//
// A Set is the memory of one process about one flow. It is a hint: other processes try the
// row themselves, and a restart tries it again.
//
// What may not enter: SQL, and what a flow does about a culprit.
package aside
