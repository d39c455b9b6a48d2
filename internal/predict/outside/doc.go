// Package outside asks a program outside how long handlers will take, over HTTP.
//
// Nothing waits for it: a Client answers from memory, and what it does not know it asks in
// the background, many questions with one request, for those that come after. Questions
// whose values are within 10 % of each other are the same question. An answer counts for
// five minutes, and is asked for anew where it is used after five seconds.
//
// What may not enter: what is learned from executions, and whether an answer may be ordered
// by (package predict), statements (store).
package outside
