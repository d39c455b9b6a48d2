// Package config turns TOML files and environment variables into one checked,
// typed value per daemon.
//
// A key is one field of [Common], [Orchestration] or [Worker], or of a struct in
// them, and everything about it stands in the tags of that field. Checking,
// [Explain], [Loaded.Show], [Generate] and [ReferenceMarkdown] are all drawn from
// them, so they cannot disagree:
//
//	toml        the name of the key, with those of tables that have no struct before it; or of the table that a struct is
//	default     its default; words of a list stand apart. Without one the key is absent unless it is set
//	min, max    the bounds of a number, both inclusive
//	oneof       the allowed words, with commas; alias: other spellings of them (other=word)
//	rule        a condition on strings that ruleNamed knows; or match, a pattern, and must, its words
//	env         the variables that override it, strongest first, with commas
//	reload      "yes" where it may change without a restart
//	secret      "yes" where it is never shown; a connection string is a [DSN] and needs no tag
//	doc         what it is, a sentence
//	effect      what changing it does
//	sets        the keys through which it acts, for one without a field; ".a.b" stands beside its table
//	planned     it has no effect until this feature exists; on a struct: none of its keys has
//	ignored     it can have no effect, for this reason; on a struct: none of its keys can
//	type        "float" where a duration may be a fraction
//
// Where a struct stands for several tables, <name> in a tag is the tag of that name
// on the nearest struct around it. A key that no code reads is a blank field. The
// name of a duration ends with its unit (_ms, _seconds, _minutes, _hours, _days) and
// its field is a time.Duration.
//
// [Load] reads the layers, reports everything that is wrong at once with file,
// line and column, and never shows a secret. A condition on one value belongs
// to its tags, a condition between keys to rules.go.
//
// The package decides nothing about how the values are used, opens no
// connection, and imports nothing of this module but deploymode and internal
// packages without configuration. Client profiles of the command line are not read here.
package config
