package store

import "github.com/jackc/pgx/v5"

// Like returns how a pool connects, for the engine's own connections: its target, user,
// TLS, DialFunc and session parameters, with the hooks BeforeConnect and AfterConnect.
// Hooks for acquired or closed connections (PrepareConn, BeforeAcquire, AfterRelease,
// BeforeClose, ShouldPing), the tracer, and the execution mode stay with the pool.
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
