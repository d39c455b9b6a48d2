// Package predict is the arithmetic of how long handlers will take: it learns from the
// executions that have ended, says on what an expectation rests, and judges from what
// followed whether it may be ordered by.
//
// A Model is what is known of one step of a template. It keeps an Estimate for each class
// of tasks (a tenant, say) and one for all of them. An estimate is a Sketch, from which
// medians and other quantiles are read, and a Regression on the numbers of the payload that
// a policy declares. Expect answers from the regression of the class where it has
// lately been better than the median, else from the median of the class, else from that of
// the step. A Judge compares what would have been answered before an execution with how
// long it took.
//
// What may not enter: statements (store), clocks, networks, and what a line
// is ordered by (order).
package predict
