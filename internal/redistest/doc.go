// Package redistest gives tests a real Redis.
//
// Each [Start] runs a redis-server of the test alone, on a socket in a directory of its own
// and without persistence; it is ready within some hundredths of a second. The test can
// kill, freeze, wipe and restart it. It ends with the test, and with the process of the
// test where the kernel can see to that.
//
// Without redis-server a test is left out, or fails in CI (internal/needs). Only tests, and the
// benchmark through [Open], may import this package. What may not enter: knowledge of what the
// product keeps in Redis.
package redistest
