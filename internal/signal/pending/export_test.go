package pending

import "time"

// Bounded returns c with bounds that only tests set: of waiting signals, of those in one
// flush, and of the pause after a failure. Zero means the default.
func (c SenderConfig) Bounded(limit, batch int, backoffMin, backoffMax time.Duration) SenderConfig {
	c.limit, c.maxBatch, c.backoffMin, c.backoffMax = limit, batch, backoffMin, backoffMax
	return c
}
