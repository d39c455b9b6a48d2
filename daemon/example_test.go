package daemon_test

import (
	"fmt"

	"github.com/tasker-go/tasker/config"
	"github.com/tasker-go/tasker/daemon"
)

// Check finds what a daemon would reject at its start, without a database.
func ExampleCheck() {
	environment := map[string]string{
		"DATABASE_URL":         "postgresql://tasker@db/tasker",
		"TASKER_TEMPLATE_PATH": "/srv/gone",
	}
	loaded, err := config.Load(config.Options{
		Context:     config.ContextWorker,
		Environment: "production",
		LookupEnv:   func(name string) (value string, ok bool) { value, ok = environment[name]; return value, ok },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, problem := range daemon.Check(loaded) {
		fmt.Println(problem)
	}
	// Output: load the templates of worker.template_path: load templates: /srv/gone: error: cannot be read: no such file or directory [IO]
}
