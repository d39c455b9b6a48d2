package needs

// Name is a tool, as the lines at the end of a run call it.
type Name string

// The tools of the table.
const (
	RabbitMQ    Name = "RabbitMQ"
	Redis       Name = "Redis"
	RedisCLI    Name = "redis-cli"
	PgBouncer   Name = "PgBouncer"
	Psql        Name = "psql"
	Node        Name = "Node"
	TypeScript  Name = "TypeScript"
	Python      Name = "Python"
	PythonStubs Name = "the Python stubs"
	Curl        Name = "curl"
	Git         Name = "git"
	Groff       Name = "groff"
)

// tool is a row of the table.
type tool struct {
	name    Name
	program string   // a name in PATH; empty: only the places count
	places  []string // patterns of files, looked at before PATH; relative ones are below the folder of the sources
	with    []string // further programs in PATH, which it runs
	least   string   // the oldest version that will do; empty: any
	version []string // arguments with which it prints its version; none: its path has it, or nothing
	script  string   // installs it
}

// table lists all tools in the order of the lines at the end of a run.
func table() []tool {
	return []tool{
		// Debian's program in PATH is a wrapper that changes the account.
		{name: RabbitMQ, program: "rabbitmq-server", places: []string{"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"},
			with: []string{"erl", "epmd"}, script: "scripts/require-rabbitmq"},
		{name: Redis, program: "redis-server", least: "6.2", version: []string{"--version"}, script: "scripts/require-redis"},
		{name: RedisCLI, program: "redis-cli", version: []string{"--version"}, script: "scripts/require-clients"},
		{name: PgBouncer, program: "pgbouncer", places: []string{"/usr/sbin/pgbouncer"}, // not on every PATH
			version: []string{"--version"}, script: "scripts/require-pgbouncer"},
		{name: Psql, program: "psql", version: []string{"--version"}, script: "scripts/require-clients"},
		{name: Node, program: "node", least: "20", version: []string{"--version"}, script: "scripts/require-node"},
		{name: TypeScript, places: []string{".tools/typescript/lib/tsc.js"}, script: "scripts/require-typescript"},
		{name: Python, program: "python3", least: "3.10", version: []string{"--version"}, script: "scripts/require-clients"},
		{name: PythonStubs, places: []string{".tools/python/stubs/tasker"}, script: "scripts/require-python-stubs"},
		{name: Curl, program: "curl", version: []string{"--version"}, script: "scripts/require-clients"},
		{name: Git, program: "git", version: []string{"--version"}, script: "scripts/require-clients"},
		{name: Groff, program: "groff", version: []string{"--version"}, script: "scripts/require-clients"},
	}
}
