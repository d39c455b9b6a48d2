// Package pgcluster runs a PostgreSQL cluster of its own: it finds the
// binaries that are installed, else fetches some, creates a data directory,
// starts the server as a child of this process on a loopback port and a
// private socket, and stops it again.
//
// It is for development and for tests (`tasker-ctl dev`, internal/pgtest), not for
// production: nothing here upgrades or backs up. It never touches a cluster it did not
// create itself, such as Debian's "main".
//
// # What is fetched
//
// Where no PostgreSQL is installed, or not the version that is wanted (VersionEnv, or that of the data directory),
// the relocatable binaries that are published on Maven Central as
// io.zonky.test.postgres:embedded-postgres-binaries-* are downloaded once, checked against the
// checksum in this package, and unpacked in the cache of the user, for root in /var/cache/tasker. MirrorEnv
// names another repository. They are the server, initdb and pg_ctl: no psql, no pg_basebackup.
//
// # Layout of a data directory
//
//	<DataDir>/lock          held (flock) by the process that runs the cluster
//	<DataDir>/password      the superuser's password, mode 0600
//	<DataDir>/run/          the socket, where its path is short enough
//	<DataDir>/socket        where the socket's directory is
//	<DataDir>/port          the port of the first start, which the socket is named after
//	<DataDir>/detached      the server has no owner
//	<DataDir>/postgres.log  the server's log
//	<DataDir>/pgdata/       PostgreSQL's own files
//
// # One address
//
// Programs that use a data directory that is kept have the same [Cluster.SocketDSN] at each start, and go on when it
// is started again. Too long a path has the socket in a directory for temporary files, whose name follows from the
// path. What a killed owner or server leaves behind (the server itself, its lock and its socket) is waited for or
// removed by the next start.
//
// # Who may connect
//
// On loopback the superuser needs the random password (scram-sha-256), which
// [Cluster.DSN] carries. The Unix socket needs no password; its directory is closed to every
// other user, so only this user (and root) can connect. [Cluster.SocketDSN] is the faster of
// the two.
//
// PostgreSQL refuses to run as root. Started by root, the cluster runs as the
// user "postgres" when there is one, else as "nobody". On Windows it runs as the user of this
// process, who must have no administrative rights, and is reached over loopback only.
package pgcluster
