// Package brokertest gives tests a real RabbitMQ.
//
// The first test that needs it starts one node for the test process: on free ports, with its
// files in a directory and with a name server (epmd) of its own, so that several processes
// have theirs side by side. [With] stops it after the tests; where the kernel can (Linux), it
// does not outlive the process in any case. Each test gets a virtual host of its own, dropped
// at its end:
//
//	func TestMain(m *testing.M) { os.Exit(brokertest.With(m).Run()) }
//
//	func TestSend(t *testing.T) {
//		host := brokertest.New(t)
//		transport, err := amqp.New(amqp.Config{URL: host.URL})
//		…
//	}
//
// Killing the node, and its alarms, touch every virtual host: tests that do so do not call
// t.Parallel.
//
// Without RabbitMQ the tests fail and say what to install; they are never skipped.
//
// What may not enter: knowledge of the product's topology. Only tests may import this package.
package brokertest
