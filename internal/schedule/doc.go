// Package schedule says when something runs that runs again and again: it reads
// cron expressions, finds the next runs in a time zone, and decides what
// becomes of runs that were missed.
//
// The fields of an expression are read by github.com/robfig/cron/v3. Its way
// over a change of the clocks is not taken: there it leaves out a daily run
// whose hour is skipped and makes one twice whose hour is repeated. Here
//
//   - an expression whose hour field names hours (30 2 * * *, 0 9-17 * * *)
//     goes by what clocks on the wall show. A time that they jump over runs
//     once, at the first moment after the gap, together with all others in it;
//     a time that they show twice runs the first time.
//   - an expression for every hour (*/15 * * * *, @hourly) goes by real time:
//     it also runs in the repeated hour, and nothing is made up for after a
//     gap, which no time has passed in.
//   - @every counts real time from the run before.
//
// What may not enter: a clock (times are parameters), the database, and what a
// run does.
package schedule
