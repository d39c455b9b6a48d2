// Package schedule computes the runs of schedules: it reads cron expressions, finds the
// next runs in a time zone, and applies the policies for missed runs.
//
// The fields of an expression name minutes that a clock shows. A change of the clocks skips
// some of them and repeats others. Here
//
//   - an expression whose hour field names hours (30 2 * * *, 0 9-17 * * *) follows local
//     time. A skipped time runs once, at the first moment after the gap, together with all
//     others in it; a repeated time runs at its first occurrence.
//   - an expression for every hour (*/15 * * * *, @hourly) follows real time: it also runs
//     in the repeated hour, and a gap, in which no time passes, has no runs.
//   - @every counts real time from the previous run.
//
// What may not enter: a clock (times are parameters), the database, and the work of a run.
package schedule
