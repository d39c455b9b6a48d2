package store

import "github.com/jackc/pgx/v5"

// Like says how a pool connects, for connections of the engine's own: where to,
// as whom, with which TLS, DialFunc and parameters of the session, and with its
// hooks BeforeConnect and AfterConnect. What the pool does when it lends a
// connection or closes one (PrepareConn, BeforeAcquire, AfterRelease,
// BeforeClose, ShouldPing), its tracer, and how it runs statements stay with the
// pool.
func Like(pool *Pool) *PoolConfig {
	cfg := pool.Config()
	cfg.PrepareConn, cfg.BeforeAcquire, cfg.AfterRelease, cfg.BeforeClose, cfg.ShouldPing = nil, nil, nil, nil, nil //nolint:staticcheck // it is still called
	cfg.MinIdleConns = 0
	c := cfg.ConnConfig
	c.Tracer, c.OnNotification = nil, nil
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	c.StatementCacheCapacity, c.DescriptionCacheCapacity = statementCache, statementCache
	return cfg
}

// statementCache is how many statements a connection remembers, as by default.
const statementCache = 512
