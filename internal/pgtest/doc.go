// Package pgtest gives tests a real PostgreSQL.
//
// All packages of a `go test ./...` run share one server per machine and user. The first
// test that needs it starts it, detached; a watchdog stops it and removes its files once no
// test process has used it for half a minute. Its data is in memory (/dev/shm) where the
// machine has enough of it, unless TMPDIR names another place. Each test gets a database of
// its own, copied from a migrated template within milliseconds, and dropped at its end.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestClaim(t *testing.T) {
//		db := pgtest.NewMigrated(t, schemaHash, migrate)
//		pool := db.Pool(t)
//		…
//	}
//
// A test that stops, kills or reconfigures the server gets one of its own with [Private].
// TASKER_TEST_DATABASE_URL names a server to use instead of the shared one; its role must be
// allowed to create databases.
//
// Without PostgreSQL the tests fail and say what to install; they are never
// skipped. Only tests may import this package.
package pgtest
