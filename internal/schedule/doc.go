// Package schedule computes the runs of schedules: it reads cron expressions, finds the
// next runs in a time zone, and applies the policies for missed runs.
//
// The fields of an expression are read by github.com/robfig/cron/v3. Its handling of clock
// changes is not used: it omits a daily run whose hour is skipped and repeats one whose
// hour is repeated. Here
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
