// Package autoscale computes how many workers a namespace needs, from what waits, what
// runs and how long handlers take, and damps the number so that it does not flap. It holds
// rules only: no clock, no database, no metric.
package autoscale
