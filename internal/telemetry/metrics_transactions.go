package telemetry

import "github.com/prometheus/client_golang/prometheus"

// TransactionMetrics are the metrics of handlers that work in a transaction.
type TransactionMetrics struct {
	Transactions    *prometheus.CounterVec // outcome
	TransactionWait prometheus.Histogram
	CommitsUnknown  prometheus.Counter
}

func newTransactionMetrics(reg prometheus.Registerer) TransactionMetrics {
	return TransactionMetrics{
		Transactions: counters(reg, "tasker_worker_transactions_total",
			"Transactions of handlers: committed, rolled_back, refused (the claim was lost), unknown (the worker ended before it was known).", "outcome"),
		TransactionWait: registered(reg, prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tasker_worker_transaction_wait_seconds", Help: "Wait of a handler for the connection of its transaction.", Buckets: latencies(),
		})),
		CommitsUnknown: counter(reg, "tasker_worker_commits_unknown_total", "Commits of handlers' transactions whose answer was lost, so that the worker had to ask what became of them."),
	}
}
