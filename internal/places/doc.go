// Package places bounds what requests hold at once, and what those of one principal may hold of it,
// so that nobody can take everything. It knows nothing of what is held: batches, streams, sessions
// and bytes are all counted here. What outlives a request's daemon, such as quotas and throttles of
// namespaces, does not belong here; the database counts that.
package places
