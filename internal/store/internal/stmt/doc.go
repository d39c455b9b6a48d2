// Package stmt makes the statements of the store readable: arguments and constants have
// names, lists of rows are slices of structs, and result columns are read by name. Names
// are resolved when the program starts, so a statement costs nothing more at run time.
//
//	const steps = stmt.Constants{"claimable": "2"}
//
//	var putSteps = stmt.New(`
//	insert into tasker.board (task_uuid, state, lane)
//	select task_uuid, {claimable}, @lane from `+stmt.List[newStep]("s"), constants)
//
//	putSteps.With(stmt.Args{"s": steps, "lane": lane}).Queue(batch)
//
// Fields are named by their tag `sql:"name"`, by default the field's name in snake case.
// A tag may go on with options:
//
//   - a type of PostgreSQL, such as smallint: that of the column in a list, by default
//     that of the Go type;
//   - omitzero: the zero value is null, in both directions; of an embedded struct, the zero
//     values of its fields;
//   - seconds: a duration is a number of seconds instead of milliseconds;
//   - inline: the fields of a struct are columns, as those of an embedded one are, except
//     that a row read may lack some.
//
// A field tagged "-" is no column.
//
// What may not enter: statements, and knowledge of the tables.
package stmt
