package fleet

import (
	"fmt"
	"hash/fnv"
	"os"
)

// EnvSource is the variable that names the event source of daemons whose Options name none.
// The program that sets it starts the broker that it needs.
const EnvSource = "TASKER_TEST_EVENT_SOURCE"

// OverBroker reports whether signals of daemons that name no event source leave the database.
func OverBroker() bool {
	source := os.Getenv(EnvSource)
	return source == "amqp" || source == "redis"
}

// apart has the fleet of a folder share the broker with others.
func apart(source, dir string) string {
	name := fnv.New64a()
	_, _ = name.Write([]byte(dir)) // it cannot fail
	switch source {
	case "amqp":
		return fmt.Sprintf("[common.queues.rabbitmq]\nnamespace = \"fleet-%x\"\n", name.Sum64())
	case "redis":
		return fmt.Sprintf("[common.signals.redis]\nprefix = \"fleet-%x\"\n", name.Sum64())
	}
	return ""
}
